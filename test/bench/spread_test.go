package bench

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/test/servers"
)

// A third each is even; a master or a node with less or more than this has another one do its work. 16 shards on three
// masters are 5, 5 and 6 at best.
const leastShare, mostShare = 0.25, 0.42

// queueRound is a queue with the places of its leader and its members, and its number of deliveries.
type queueRound struct {
	Name      string   `json:"name"`
	Leader    string   `json:"leader"`
	Members   []string `json:"members"`
	delivered float64
}

// queueLook looks at a run's queues while they are there.
type queueLook struct {
	management *servers.Management
	looking    sync.Once
	found      []queueRound
	err        error
}

// once looks at the first sign that the run is under way.
func (l *queueLook) once(bench.Progress) {
	l.looking.Do(func() { l.err = l.management.Call(http.MethodGet, "/api/queues/%2F", nil, &l.found) })
}

// queues are the observed queues, by name, with their deliveries in the end.
func (l *queueLook) queues(b *testing.B, report bench.Report) []queueRound {
	b.Helper()
	if l.err != nil || len(l.found) != report.Settings.Queues {
		b.Fatalf("of %d queues these were seen: %+v, %v", report.Settings.Queues, l.found, l.err)
	}
	slices.SortFunc(l.found, func(one, other queueRound) int { return strings.Compare(one.Name, other.Name) })
	for i := range l.found {
		l.found[i].delivered = float64(report.Deliveries[l.found[i].Name])
	}
	return l.found
}

// calls are how often commands were called, by clients and by scripts.
type calls struct{ scripts, all float64 }

// commandStats asks each master.
func (s *site) commandStats() []calls {
	all := make([]calls, len(s.masters))
	for i, master := range s.masters {
		for line := range strings.Lines(master.CLI("INFO", "commandstats")) {
			name, rest, is := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			if !is {
				continue
			}
			text, _, _ := strings.Cut(rest, ",")
			count, err := strconv.ParseFloat(text, 64)
			s.must(err)
			all[i].all += count
			if strings.HasPrefix(name, "eval") || strings.HasPrefix(name, "fcall") {
				all[i].scripts += count
			}
		}
	}
	return all
}

// receiptsOf counts the receipts on a master, by shard: the receipts of messages that were done in the last seconds.
func receiptsOf(master *servers.RedisServer) map[string]int {
	counts := map[string]int{}
	for key := range strings.Lines(master.CLI("KEYS", "msghandler:{*:m:*")) {
		_, rest, _ := strings.Cut(key, "{")
		shard, _, _ := strings.Cut(rest, "}")
		counts[shard]++
	}
	delete(counts, "") // none at all is an empty line
	return counts
}

// reportSpread reports how the work was spread over masters, nodes and queues.
func (r *siteRow) reportSpread(mode bench.Mode) {
	r.b.Helper()
	fmt.Printf("%s, %s; shares are of all rounds, shards and queues of the last one:\n\n%s\n%s\n%s\n", r.name, mode,
		markdown(r.mastersTable(mode)), markdown(r.nodesTable(mode)), markdown(r.queuesTable(mode)))
}

func (r *siteRow) mastersTable(mode bench.Mode) [][]string {
	r.b.Helper()
	table := [][]string{{"master", "messages", "script calls", "commands", "CPU us/message", "shards"}}
	messages, scripts, commands := make([]float64, len(r.masters)), make([]float64, len(r.masters)),
		make([]float64, len(r.masters))
	for _, round := range r.rounds[mode] {
		for i := range r.masters {
			scripts[i] += round.scripts[i]
			commands[i] += round.commands[i]
			for _, count := range round.receipts[i] {
				messages[i] += float64(count)
			}
		}
	}
	for i := range r.masters {
		table = append(table, []string{
			masterGroup(i), share(messages, i), share(scripts, i), share(commands, i), r.groupCPU(mode, masterGroup(i)),
			shardList(r.last(mode).receipts[i]),
		})
	}
	r.mustBeSpread("the masters' messages", messages)
	return table
}

// shardList reports how many shards a master has, and how evenly they are filled.
func shardList(receipts map[string]int) string {
	counts := slices.Sorted(maps.Values(receipts))
	if len(counts) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, with %d to %d messages", len(counts), counts[0], counts[len(counts)-1])
}

func (r *siteRow) nodesTable(mode bench.Mode) [][]string {
	r.b.Helper()
	table := [][]string{{"node", "messages of the queues that it leads", "leads", "member of", "CPU us/message"}}
	led := make([]float64, len(r.nodes))
	for _, round := range r.rounds[mode] {
		for _, queue := range round.queues {
			led[r.node(queue.Leader)] += queue.delivered
		}
	}
	for i, node := range r.nodes {
		var leads, member int
		for _, queue := range r.last(mode).queues {
			leads += count(queue.Leader == node.Name())
			member += count(slices.Contains(queue.Members, node.Name()))
		}
		if member < r.queues {
			r.b.Errorf("%s has members of %d of %d queues", nodeGroup(i), member, r.queues)
		}
		table = append(table, []string{
			nodeGroup(i), share(led, i), strconv.Itoa(leads), strconv.Itoa(member), r.groupCPU(mode, nodeGroup(i)),
		})
	}
	r.mustBeSpread("the messages of the nodes' queues", led)
	return table
}

// node is the place of a node among the site's.
func (r *siteRow) node(name string) int {
	r.b.Helper()
	i := slices.IndexFunc(r.nodes, func(node *servers.RabbitServer) bool { return node.Name() == name })
	if i < 0 {
		r.b.Fatalf("%q leads a queue and is none of the nodes", name)
	}
	return i
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (r *siteRow) queuesTable(mode bench.Mode) [][]string {
	table := [][]string{{"queue", "leader", "members", "delivered"}}
	for i, queue := range r.last(mode).queues {
		var members []string
		for _, name := range queue.Members {
			members = append(members, nodeGroup(r.node(name)))
		}
		slices.Sort(members)
		table = append(table, []string{
			strconv.Itoa(i + 1), nodeGroup(r.node(queue.Leader)), strings.Join(members, ", "),
			fmt.Sprintf("%.0f", queue.delivered),
		})
	}
	return table
}

// groupCPU is the median of the CPU time of one process for a message.
func (r *siteRow) groupCPU(mode bench.Mode, group string) string {
	return fmt.Sprintf("%.0f", medianOf(r.rounds[mode], func(f siteRound) float64 { return f.cpu[group] }))
}

// mustBeSpread fails the benchmark where one of several has too little or too much.
func (r *siteRow) mustBeSpread(what string, over []float64) {
	r.b.Helper()
	for i := range over {
		if part := over[i] / sumOf(over); part < leastShare || part > mostShare {
			r.b.Errorf("%s are not spread: number %d has %s", what, i+1, share(over, i))
		}
	}
}

func share(of []float64, i int) string { return fmt.Sprintf("%.1f %%", 100*of[i]/sumOf(of)) }

func sumOf(values []float64) (sum float64) {
	for _, value := range values {
		sum += value
	}
	return sum
}
