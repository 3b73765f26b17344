package bench

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/usage"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	queues = flag.Int("queues", 6, "how many quorum queues BenchmarkClusters publishes to")
	shards = flag.Int("shards", 0, "redis.shards of BenchmarkScale and BenchmarkDrain, and of BenchmarkClusters "+
		"on the Cluster; "+
		"0: what coordinators take by themselves")
)

// BenchmarkClusters measures coordinators on a Redis Cluster of three masters and a RabbitMQ cluster of three nodes,
// in turn with as many on one Redis and one RabbitMQ, and how the work is spread over masters, nodes and queues. All
// of them share the machine, so a cluster is not faster: the result is the cost of a message on each site. The
// benchmark fails when a message is lost or copied, when a queue has no member on a node, and when a master or a node
// has too much or too little of the work.
//
//	go test ./test/bench -run '^$' -bench Clusters -benchtime 1x -timeout 30m -args -rounds 3 -seconds 4 -coordinators 3
func BenchmarkClusters(b *testing.B) {
	for b.Loop() {
		rows := clusterRows(b)
		for _, row := range rows {
			row.measure(bench.Gathered) // warms all up
		}
		for round := range *rounds {
			for _, row := range rows {
				for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
					found := row.measure(mode)
					row.rounds[mode] = append(row.rounds[mode], found)
					b.Logf("round %d: %s, %s: %.0f messages/s", round+1, row.name, mode, found.figure.rate)
				}
			}
		}
		fmt.Printf("\n%d bytes, medians of %d interleaved rounds of %.0f s, %d CPUs, coordinators: %d\n\n%s\n", *bodySize,
			*rounds,
			*seconds, runtime.NumCPU(), *coordinators, markdown(clusterTable(rows)))
		clusters := rows[len(rows)-1]
		for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
			clusters.reportSpread(mode)
		}
	}
}

// site is a Redis and a RabbitMQ, of one server or of several each, with coordinators of its own.
type site struct {
	*setup
	masters []*servers.RedisServer
	nodes   []*servers.RabbitServer
}

// siteRow is a site under load through so many queues, and what each round found.
type siteRow struct {
	*site
	name   string
	queues int
	rounds map[bench.Mode][]siteRound
}

// siteRound is the result of one round. Figures of each server are in the order of the site's masters and nodes.
type siteRound struct {
	figure figure
	// cpu is microseconds for each message, by group of processes.
	cpu map[string]float64
	// messages is the number of messages, also outside of the measured time.
	messages float64
	// scripts and commands are calls of each master.
	scripts, commands []float64
	// receipts are the receipts on each master, by shard.
	receipts []map[string]int
	queues   []queueRound
}

// clusterRows are the compared sites, the clusters last.
func clusterRows(b *testing.B) []*siteRow {
	b.Helper()
	one := newSite(b, []*servers.RedisServer{servers.Redis(b)}, []*servers.RabbitServer{servers.PrivateRabbitMQ(b)})
	three := newSite(b, servers.RedisMasters(b), servers.RabbitCluster(b))
	row := func(s *site, name string, queues int) *siteRow {
		return &siteRow{site: s, name: name, queues: queues, rounds: map[bench.Mode][]siteRound{}}
	}
	return []*siteRow{
		row(one, "one Redis, one RabbitMQ, one queue", 1),
		row(one, fmt.Sprintf("one Redis, one RabbitMQ, %d queues", *queues), *queues),
		row(three, fmt.Sprintf("three masters, three nodes, %d queues", *queues), *queues),
	}
}

// newSite starts coordinators on running servers.
func newSite(b *testing.B, masters []*servers.RedisServer, nodes []*servers.RabbitServer) *site {
	b.Helper()
	s := &site{masters: masters, nodes: nodes, setup: &setup{
		b: b, redis: masters[0], rabbit: nodes[0], binary: buildCoordinator(b),
	}}
	for i := range *coordinators {
		s.startCoordinator(s.redisURL(), s.brokers(i), s.settings()...)
	}
	return s
}

func (s *site) settings() []string {
	if len(s.masters) == 1 {
		return nil
	}
	return sharding()
}

// redisURL names all masters.
func (s *site) redisURL() string {
	if len(s.masters) == 1 {
		return s.redis.URL()
	}
	var addresses []string
	for _, master := range s.masters {
		addresses = append(addresses, master.Addr)
	}
	return "redis://" + strings.Join(addresses, ",")
}

// brokers names all nodes, for each coordinator another node first: a coordinator connects to the first node within
// reach.
func (s *site) brokers(coordinator int) string {
	var urls []string
	for i := range s.nodes {
		urls = append(urls, s.nodes[(coordinator+i)%len(s.nodes)].URL)
	}
	return strings.Join(urls, ",")
}

// masterGroup and nodeGroup name the group of one process.
func masterGroup(i int) string { return fmt.Sprintf("%s %d", bench.Redis, i+1) }
func nodeGroup(i int) string   { return fmt.Sprintf("%s %d", bench.RabbitMQ, i+1) }

// processes are the processes whose costs are reported, together and each server alone.
func (s *site) processes() usage.Processes {
	processes := usage.Processes{bench.Producer: {os.Getpid()}}
	for i, master := range s.masters {
		processes[masterGroup(i)] = []int{master.Pid()}
		processes[bench.Redis] = append(processes[bench.Redis], master.Pid())
	}
	for i, node := range s.nodes {
		processes[nodeGroup(i)] = []int{node.Pid()}
		processes[bench.RabbitMQ] = append(processes[bench.RabbitMQ], node.Pid())
	}
	for _, coordinator := range s.all {
		processes[bench.Coordinator] = append(processes[bench.Coordinator], coordinator.process.Process.Pid)
	}
	return processes
}

// measure runs one round.
func (r *siteRow) measure(mode bench.Mode) siteRound {
	r.b.Helper()
	looked := &queueLook{management: r.rabbit.Management()}
	load := r.load()
	load.Mode, load.Queues, load.ConsumeAfter = mode, r.queues, true
	load.Processes, load.Progress = r.processes(), looked.once
	before := r.commandStats()
	report := r.setup.measure(load)
	after := r.commandStats()
	if report.Balance.Copies > 0 || report.SubmitToAck == nil {
		r.b.Fatalf("%s, %s: of %d messages, balance %+v", r.name, mode, report.Messages, report.Balance)
	}
	found := siteRound{
		figure: figure{rate: report.Rate, p50: report.SubmitToAck.P50, p99: report.SubmitToAck.P99},
		cpu:    report.CPU, messages: float64(report.Balance.Committed), queues: looked.queues(r.b, report),
	}
	for i := range r.masters {
		found.scripts = append(found.scripts, after[i].scripts-before[i].scripts)
		found.commands = append(found.commands, after[i].all-before[i].all)
		found.receipts = append(found.receipts, receiptsOf(r.masters[i]))
	}
	return found
}

// last is the last measured round.
func (r *siteRow) last(mode bench.Mode) siteRound {
	all := r.rounds[mode]
	return all[len(all)-1]
}

// cost is the processor time of a message in all processes.
func (r siteRound) cost() (sum float64) {
	for _, name := range bench.Processes {
		sum += r.cpu[name]
	}
	return sum
}

// clusterTable has a line for each mode of each row; ratios are to the first row, of the same round.
func clusterTable(rows []*siteRow) [][]string {
	table := [][]string{{
		"what", "messages/s", "ratio (by CPU)", "Submit to ack p50, p99", "script calls a message",
		"CPU us/message: " + strings.Join(bench.Processes, ", "),
	}}
	for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
		for _, row := range rows {
			table = append(table, row.line(mode, rows[0].rounds[mode]))
		}
	}
	return table
}

func (r *siteRow) line(mode bench.Mode, first []siteRound) []string {
	mine := r.rounds[mode]
	median := func(of func(siteRound) float64) float64 { return medianOf(mine, of) }
	var rates, costs []float64
	for i, round := range mine {
		rates = append(rates, round.figure.rate/first[i].figure.rate)
		costs = append(costs, first[i].cost()/round.cost())
	}
	slices.Sort(rates)
	slices.Sort(costs)
	var cpu []string
	for _, name := range bench.Processes {
		cpu = append(cpu, fmt.Sprintf("%.0f", median(func(f siteRound) float64 { return f.cpu[name] })))
	}
	return []string{
		fmt.Sprintf("%s, %s", r.name, mode),
		fmt.Sprintf("%.0f", median(func(f siteRound) float64 { return f.figure.rate })),
		fmt.Sprintf("%.2f (%.2f)", rates[len(rates)/2], costs[len(costs)/2]),
		milliseconds(median(func(f siteRound) float64 { return f.figure.p50 })) + ", " +
			milliseconds(median(func(f siteRound) float64 { return f.figure.p99 })),
		fmt.Sprintf("%.2f", median(func(f siteRound) float64 { return sumOf(f.scripts) / f.messages })),
		strings.Join(cpu, ", "),
	}
}
