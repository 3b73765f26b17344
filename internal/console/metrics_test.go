package console

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	"github.com/msghandler/msghandler/test/must"
)

//go:generate go test -vet=off -run TestTheTableOfMetricsIsFresh -update .

var update = flag.Bool("update", false, "write the table of docs/reference/metrics.md anew")

// The table stands between these lines.
const (
	tableBegins = "<!-- metrics: made by make generate -->\n"
	tableEnds   = "<!-- end of metrics -->\n"
)

func TestTheTableOfMetricsIsFresh(t *testing.T) {
	const path = "../../docs/reference/metrics.md"
	page, err := os.ReadFile(path)
	must.Succeed(t, err)
	before, rest, begins := strings.Cut(string(page), tableBegins)
	old, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		t.Fatalf("%s has lost the lines between which the table stands", path)
	}
	want := table(t)
	if *update {
		must.Succeed(t, os.WriteFile(path, []byte(before+tableBegins+want+tableEnds+after), 0o600))
		return
	}
	if old != want {
		t.Errorf("the table of metrics in %s differs from the registered metrics; run: make generate", path)
	}
}

// table lists all metrics of an instance with every part.
func table(t *testing.T) string {
	t.Helper()
	m := NewMetrics()
	m.Build("v1", "host-1")
	m.Loop("confirm", func() float64 { return 0 }, func() float64 { return 0 })
	m.Queue("confirm", func() int { return 0 })
	m.Broker("", func() error { return nil })
	m.Duplicates("", func() int64 { return 0 })
	m.Certificates(func() map[string]expiry.Certificate { return nil })
	m.Watched(func() map[string]int { return nil })
	m.DeadLetters(func() map[string]int { return nil })
	m.Letters(func() map[string]int { return nil })
	m.Lateness(func() time.Duration { return 0 })
	m.UncleanEnds(func() int { return 0 })
	m.StoreMemory(func() []StoreMemory { return nil })
	m.Unworked(func() map[string]int64 { return nil }, func() []UnrelayedRows { return nil })
	m.Fleet(func() Fleet { return Fleet{} })
	m.Connections("grpc.addr", func() int { return 0 }, 1)
	m.Attending(func() int { return 0 }, 1)
	New(Config{Metrics: m})

	described := make(chan *prometheus.Desc)
	go func() { m.registry.Describe(described); close(described) }()
	form := regexp.MustCompile(
		`fqName: "(msghandler_\w+)", help: "(.*)", unit: "\w*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`,
	)
	var lines []string
	for desc := range described {
		if found := form.FindStringSubmatch(desc.String()); found != nil {
			labels := append(regexp.MustCompile(`\w+=`).FindAllString(found[3], -1), strings.Split(found[4], ",")...)
			names := strings.NewReplacer("=", "").Replace(strings.Trim(strings.Join(labels, ", "), ", "))
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |\n", found[1], names, found[2]))
		}
	}
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) < 30 {
		t.Fatalf("only %d metrics are found", len(lines))
	}
	return "| metric | labels | meaning |\n|---|---|---|\n" + strings.Join(lines, "")
}

// Prometheus sees no increase in a series that begins with its first event, so an alert would miss the event.
func TestAlertedCountersBeginAtZero(t *testing.T) {
	families, err := NewMetrics().registry.Gather()
	must.Succeed(t, err)
	var text strings.Builder
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			fmt.Fprintln(&text, f.GetName(), metric.GetLabel())
		}
	}
	for _, want := range []string{
		`msghandler_store_regressions_total`, `msghandler_moves_total .*"committed".*"lease_lost"`,
		`msghandler_moves_total .*"rolled_back".*"contradiction"`, `msghandler_calls_total .*"FailedPrecondition".*"Submit"`,
		`msghandler_outcomes_total .*"FailedPrecondition".*"SubmitAll"`, `msghandler_marker_deletions_total .*"left"`,
		`msghandler_webhook_posts_total .*"failed"`,
	} {
		if !regexp.MustCompile(want).MatchString(text.String()) {
			t.Errorf("%s is not there before its first event:\n%s", want, &text)
		}
	}
}

func TestHistogramsAreClassicAndNative(t *testing.T) {
	m := NewMetrics()
	m.Committed(&halfmsg.Claim{CreatedAt: time.Now().Add(-time.Second)})
	families, err := m.registry.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		if f.GetName() != "msghandler_sendable_seconds" {
			continue
		}
		h := f.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != 1 || len(h.GetBucket()) == 0 || len(h.GetPositiveSpan()) == 0 {
			t.Errorf("%d samples, %d classic buckets, native %v", h.GetSampleCount(), len(h.GetBucket()), h.GetPositiveSpan())
		}
		return
	}
	t.Error("there is no such histogram")
}

func TestNamedProducersAndExchangesAreBounded(t *testing.T) {
	m := NewMetrics()
	series := func() (n int) {
		families, err := m.registry.Gather()
		must.Succeed(t, err)
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "msghandler_") {
				n += len(f.GetMetric())
			}
		}
		return n
	}
	see := func(from, to int) {
		for i := from; i < to; i++ {
			name := fmt.Sprint("name-", i)
			m.Confirmed(name, 1, map[string]halfmsg.Verdict{"1": halfmsg.VerdictCommitted}, time.Second, nil)
			m.Published("", name, halfmsg.Acked, 1)
		}
	}
	see(0, peerstats.MaxNamed+1)
	full := series()
	see(0, 10*peerstats.MaxNamed)
	if got := series(); got != full {
		t.Errorf("%d series with %d names, %d with ten times as many", full, peerstats.MaxNamed+1, got)
	}
	lines := map[string]peerstats.Exchange{}
	for _, e := range m.peers.Exchanges() {
		lines[e.Name] = e
	}
	if own, others := lines["name-0"].Acked(), lines[peerstats.Other].Acked(); own != 2 ||
		others != 9*peerstats.MaxNamed+1 {
		t.Errorf("counted %v of a named producer, %v of others", own, others)
	}
}

// For Prometheus an empty label is no label, and two series with the same labels are an error.
func TestTheDefaultExchangeHasALabel(t *testing.T) {
	m := NewMetrics()
	m.Published("", "", halfmsg.Acked, 2)
	m.Published("", "(default)", halfmsg.Acked, 3)
	families, err := m.registry.Gather()
	must.Succeed(t, err)
	for _, f := range families {
		if f.GetName() != "msghandler_publishes_total" {
			continue
		}
		if first := f.GetMetric()[0]; first.GetCounter().GetValue() != 5 || first.GetLabel()[0].GetValue() != "(default)" {
			t.Errorf("got %v", f)
		}
	}
}

// The charts and /metrics tell of the same messages.
func TestASnapshotHoldsDifferences(t *testing.T) {
	m := NewMetrics()
	before := m.snapshot(time.Now())
	m.RPC("SendHalfMessage", "OK", time.Millisecond)
	m.RPC("SendHalfMessage", "Unavailable", time.Millisecond)
	m.RPC("SendHalfMessages", "OK", time.Millisecond)
	m.BatchOutcome("SendHalfMessages", "OK")
	m.BatchOutcome("SendHalfMessages", "ResourceExhausted")
	m.RPC("SendHalfMessage", "ResourceExhausted", time.Millisecond)
	m.Stored("orders", 2)
	m.Refused("stranger", "CALLER_FORBIDDEN", "cause")
	m.Published("", "shop", halfmsg.Acked, 6)
	m.Published("", "shop", halfmsg.Refused, 2)
	orders := halfmsg.Name{Producer: "orders"}
	m.Acked([]halfmsg.Claim{
		{CreatedAt: time.Now().Add(-time.Minute), Message: halfmsg.Message{Name: orders}},
		{CreatedAt: time.Now().Add(-time.Hour), Message: halfmsg.Message{Name: orders, Delay: time.Hour}},
		{CreatedAt: time.Now().Add(-time.Minute), Message: halfmsg.Message{Name: halfmsg.Name{Producer: "stock"}}},
		{CreatedAt: time.Now().Add(-time.Minute), Message: halfmsg.Message{Name: orders}},
	})
	now := m.snapshot(time.Now())
	added := now.Since(before)
	if added.In != 2 || added.Out != 6 || added.Refused != 2 || now.Since(now).Refused != 0 {
		t.Errorf("in %d, out %d, refused %d", added.In, added.Out, added.Refused)
	}
	if p99, _ := added.Latency.Quantile(.99); p99 < 50*time.Second || p99 > 70*time.Second {
		t.Errorf("messages took %v, delayed ones left out", p99)
	}
	if got := fmt.Sprint(added.Producers); got != "map[orders:{2 3 0 0 0 0} stock:{0 1 0 0 0 0} stranger:{0 0 1 0 0 0}]" {
		t.Errorf("the producers are %s", got)
	}
	if got := fmt.Sprint(added.Exchanges); got != "map[{ shop}:{6 2 0}]" {
		t.Errorf("the exchanges are %s", got)
	}
}

func TestPendingByProducerIsBounded(t *testing.T) {
	counts := map[string]int64{}
	for n := range int64(peerstats.MaxNamed + 50) {
		counts[fmt.Sprint("producer-", n)] = n + 1
	}
	got := bounded(counts)
	if len(got) != peerstats.MaxNamed+1 || got["producer-149"] != 150 || got[peerstats.Other] != 50*51/2 {
		t.Errorf("%d producers, the largest with %d, and %d of others", len(got), got["producer-149"], got[peerstats.Other])
	}
}

// A producer whose messages are counted as those of others has some: it is not told to have none.
func TestPendingAmongOthersIsNotZero(t *testing.T) {
	counts := map[string]int64{}
	for n := range int64(peerstats.MaxNamed + 1) {
		counts[fmt.Sprint("producer-", n)] = n + 1
	}
	peers := peerstats.New()
	for _, producer := range []string{"producer-0", "producer-100", "idle"} {
		peers.Confirmed(producer, 1, nil, 0, nil)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newStats(func(context.Context) ([]halfmsg.Stat, error) {
		return []halfmsg.Stat{{State: halfmsg.Pending, Producers: counts}}, nil
	}, peers, time.Minute))
	families, err := registry.Gather()
	must.Succeed(t, err)
	got := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "msghandler_pending_messages" {
			continue
		}
		for _, m := range family.GetMetric() {
			got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	idle, isIdle := got["idle"]
	_, isZero := got["producer-0"]
	if !isIdle || idle != 0 || isZero || got["producer-100"] != peerstats.MaxNamed+1 || got[peerstats.Other] != 1 {
		t.Errorf("told are %v", got)
	}
}

// Scripts without messages take as long as there is data, and a broker that does not acknowledge is another trouble.
func TestLatenciesAreOfAnsweredMessages(t *testing.T) {
	m := NewMetrics()
	m.ScriptRun("repair", 0, time.Second)
	m.ScriptRun("create", 0, time.Second) // failed
	m.ScriptRun("create", 3, 2*time.Second)
	m.PublishedBatch("events", 5, 0, time.Second)
	m.PublishedBatch("", 5, 1, 4*time.Second)
	redis, brokers := m.Latencies()
	if d, _ := redis.Quantile(.5); redis.Total() != 1 || d < time.Second {
		t.Errorf("%d scripts, half of them %v", redis.Total(), d)
	}
	acked := brokers[""]
	if d, _ := acked.Quantile(.5); len(brokers) != 1 || acked.Total() != 1 || d < 3*time.Second {
		t.Errorf("%d brokers; %d acknowledgements, half of them %v", len(brokers), acked.Total(), d)
	}
}
