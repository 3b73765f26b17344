package cli

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
)

// sizeCommand computes what an installation needs.
type sizeCommand struct {
	Rate      int           `default:"1000" help:"New messages a second, at the busiest time." placeholder:"NUMBER"`
	Body      string        `default:"1KiB" help:"The size of a body." placeholder:"SIZE"`
	Outage    time.Duration `default:"1h" help:"How long brokers or producers may be away, and all messages wait in Redis." placeholder:"TIME"`
	Retention time.Duration `default:"10m" help:"done.retention: how long the receipt of a finished message stays." placeholder:"TIME"`
	Single    bool          `help:"Producers send each message in a call of its own, without the SDK, which gathers them in batches."`
}

// Help returns the text below the usage in --help.
func (c *sizeCommand) Help() string {
	return `size computes memory and CPUs from costs that were measured (docs/evidence/performance.md), and talks to no
server. It plans with 60 % of each CPU, so that a backlog is worked off beside the load. Your machines differ:
measure with msghandler-bench.`
}

// What a message takes, by docs/evidence/performance.md. Bytes are those of a body that cannot be packed, times are
// those of the slow machine there.
const (
	waitingOverhead = 610
	receiptSize     = 218
	busy            = 0.6

	coordinatorCPUs   = 2
	leastCoordinators = 2
	leastMasters      = 3      // of a Cluster
	largestQueue      = 12_900 // messages a second of one quorum queue
)

// cost is the CPU time of a message.
type cost struct{ coordinator, redis, rabbit time.Duration }

var (
	batchedCost = cost{81 * time.Microsecond, 92 * time.Microsecond, 72 * time.Microsecond}
	singleCost  = cost{286 * time.Microsecond, 161 * time.Microsecond, 97 * time.Microsecond}
	// A call to a Cluster is split among its masters, and so are batches.
	clusterBatchedCost = cost{120 * time.Microsecond, 201 * time.Microsecond, 72 * time.Microsecond}
)

// sizing is what an installation needs.
type sizing struct {
	waitingBytes, receiptBytes, maxMemory float64
	// masters is above 1 where one Redis, which runs scripts on one thread, does not do; servers is how many would do
	// in place of a Cluster, each with coordinators of its own.
	masters, servers, coordinators, queues int
	redisCPUs, coordinatorCPUs, rabbitCPUs float64
}

// Run prints what an installation needs.
func (c *sizeCommand) Run(s *commandline.Session) error {
	body, err := config.ParseSize(c.Body)
	if err != nil {
		return commandline.UsageError{Err: fmt.Errorf("--body=%s %w", c.Body, err)}
	}
	if c.Rate < 1 || c.Rate > 100_000_000 {
		return commandline.UsageError{Err: errors.New("--rate: 1 to 100000000 messages a second")}
	}
	if body > 8<<20 {
		return commandline.UsageError{Err: fmt.Errorf("--body=%s: 0 to 8MiB, as limits.body", c.Body)}
	}
	const longest = 366 * 24 * time.Hour
	if c.Outage < 0 || c.Outage > longest || c.Retention < 0 || c.Retention > longest {
		return commandline.UsageError{Err: errors.New("--outage and --retention: 0s to 8784h, which is a year")}
	}
	return s.PrintTable(c.rows(c.compute(int64(body))))
}

func (c *sizeCommand) compute(body int64) sizing {
	rate := float64(c.Rate)
	cpus := func(each time.Duration) float64 { return math.Ceil(rate*each.Seconds()/busy*10) / 10 }
	each := batchedCost
	if c.Single {
		each = singleCost
	}
	needs := sizing{
		waitingBytes: rate * c.Outage.Seconds() * float64(body+waitingOverhead),
		receiptBytes: rate * c.Retention.Seconds() * receiptSize,
		masters:      1,
		servers:      int(math.Ceil(rate * each.redis.Seconds() / busy)),
		queues:       int(math.Ceil(rate / largestQueue)),
	}
	needs.maxMemory = (needs.waitingBytes + needs.receiptBytes) * 1.1
	if cpus(each.redis) > 1 {
		if !c.Single {
			each = clusterBatchedCost
		}
		needs.masters = max(leastMasters, int(math.Ceil(rate*each.redis.Seconds()/busy)))
	}
	needs.redisCPUs, needs.coordinatorCPUs, needs.rabbitCPUs = cpus(each.redis), cpus(each.coordinator), cpus(each.rabbit)
	needs.coordinators = max(leastCoordinators, int(math.Ceil(rate*each.coordinator.Seconds()/busy/coordinatorCPUs)))
	return needs
}

func (c *sizeCommand) rows(n sizing) [][]string {
	servers, of := "one server; its scripts run on one thread", ""
	if n.masters > 1 {
		of = " of each master"
		servers = fmt.Sprintf("a Cluster of %d masters, or %d servers with coordinators of their own", n.masters, n.servers)
	}
	return [][]string{
		{"WHAT", "NEEDS", "BECAUSE"},
		{"Redis: maxmemory" + of, gigabytes(n.maxMemory / float64(n.masters)), fmt.Sprintf("%s of messages wait, "+
			"%s of receipts stay, a tenth to spare", gigabytes(n.waitingBytes), gigabytes(n.receiptBytes))},
		{
			"Redis: memory of the machine" + of, gigabytes(2 * n.maxMemory / float64(n.masters)),
			"Redis copies what changes while it rewrites its file",
		},
		{"Redis: CPUs", fmt.Sprintf("%.1f", n.redisCPUs), servers},
		{"coordinators", fmt.Sprint(n.coordinators), "at least two, so that one goes on; of 2 CPUs and 256 MiB each"},
		{"coordinators: CPUs", fmt.Sprintf("%.1f", n.coordinatorCPUs), "in all"},
		{"RabbitMQ: CPUs", fmt.Sprintf("%.1f", n.rabbitCPUs), "with one member of each queue; four times as many with three"},
		{"RabbitMQ: queues", fmt.Sprint(n.queues), "at least; each has one leader"},
	}
}

// gigabytes writes bytes as people plan with them.
func gigabytes(bytes float64) string {
	if bytes < 1e9 {
		return fmt.Sprintf("%.0f MB", math.Ceil(bytes/1e6))
	}
	return fmt.Sprintf("%.1f GB", math.Ceil(bytes/1e8)/10)
}
