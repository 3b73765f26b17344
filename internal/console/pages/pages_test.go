package pages

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		count(0): "0", count(999): "999", count(1000): "1,000", count(-1234567): "-1,234,567",
		rate(0): "0", rate(.26): "0.3", rate(1499.6): "1,500",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A message that waits for its delay or its confirm_after may be old without a problem. A due message that is not
// published is a problem.
func TestOverviewFindsOverdueMessages(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	for _, c := range []struct {
		stat      halfmsg.Stat
		undecided time.Duration
		want      string
	}{
		{halfmsg.Stat{State: halfmsg.Sendable, FirstDueAt: now.Add(10 * time.Minute)}, 0, ""},
		{halfmsg.Stat{State: halfmsg.Sendable, FirstDueAt: now.Add(-30 * time.Second)}, 0, ""},
		{
			halfmsg.Stat{State: halfmsg.Sendable, FirstDueAt: now.Add(-2 * time.Minute)},
			0,
			"the first message has been due for 2 min",
		},
		{halfmsg.Stat{State: halfmsg.Pending, FirstDueAt: now.Add(time.Second)}, 14 * time.Minute, ""},
		{
			halfmsg.Stat{State: halfmsg.Pending, FirstDueAt: now.Add(time.Second)},
			time.Hour,
			"The verdict of a pending message is overdue by 1 h",
		},
		{halfmsg.Stat{State: halfmsg.Dead}, 0, "7 dead"},
		{halfmsg.Stat{State: halfmsg.Abandoned}, 0, "7 abandoned"},
	} {
		c.stat.Count, c.stat.OldestAt = 7, now.Add(-time.Hour)
		data := overviewData{States: stateLines([]halfmsg.Stat{c.stat}, true, history.NewSeries(history.Ranges[0], nil, now))}
		data.find(nil, c.undecided, now)
		found := fmt.Sprint(data.Problems)
		if c.want == "" && len(data.Problems) > 0 || !strings.Contains(found, c.want) {
			t.Errorf("%+v: found %s, want %q", c.stat, found, c.want)
		}
	}
}

func TestOverviewFindsRefusedCalls(t *testing.T) {
	t.Parallel()
	data := overviewData{Refused: 1200}
	data.find(nil, 0, time.Now())
	if found := fmt.Sprint(data.Problems); !data.Bad ||
		!strings.Contains(found, "Calls are refused, 1,200 in 10 s: Redis is full") {
		t.Errorf("found %s", found)
	}
}

// A single unroutable message must not mark its exchange as down for ever.
func TestTheOverviewForgetsOldFailures(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		failed, succeeded time.Time
		paused            int
		want              int
	}{
		{failed: ago(2 * time.Minute), succeeded: ago(3 * time.Minute), want: 2},
		{failed: ago(4 * time.Minute), want: 2},
		{failed: ago(5 * time.Minute), want: 0},
		{failed: ago(5 * time.Minute), succeeded: ago(time.Hour), want: 0},
		{failed: ago(2 * time.Minute), succeeded: ago(time.Minute), want: 0},
		{failed: ago(time.Hour), paused: 1, want: 1},
		{},
	} {
		var data overviewData
		data.setPeers([]peerstats.Producer{{Name: "orders", FailedAt: c.failed, AnsweredAt: c.succeeded, Paused: c.paused}},
			[]peerstats.Exchange{{Name: "shop", FailedAt: c.failed, AckedAt: c.succeeded}}, now)
		if data.find(nil, 0, now); len(data.Problems) != c.want {
			t.Errorf("%+v: found %v", c, data.Problems)
		}
	}
}

// legend is the legend of a line.
func legend(line chartLine) string { return line.Name + " " + line.Now + ", max " + line.Top }

func TestALegendHidesUnknownValues(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	bucket := func(ago time.Duration, fields map[string]string) history.Bucket {
		return history.NewBucket(now.Add(-ago), fields)
	}
	then := bucket(50*time.Minute, map[string]string{"l43": "1"})
	for _, c := range []struct {
		buckets []history.Bucket
		want    string
	}{
		{nil, "p99 -, max -"},
		{[]history.Bucket{then}, "p99 -, max 13 s"},
		{[]history.Bucket{then, bucket(10*time.Second, nil)}, "p99 -, max 13 s"},
		{[]history.Bucket{then, bucket(10*time.Second, map[string]string{"l31": "1"})}, "p99 909 ms, max 13 s"},
	} {
		series := history.NewSeries(history.Ranges[0], c.buckets, now)
		if got := legend(flowCharts(series)[1].Lines[1]); got != c.want {
			t.Errorf("of %d buckets: %s, want %s", len(c.buckets), got, c.want)
		}
	}
}

// Peers are those of all coordinators, and an open circuit says at how many.
func TestPagesSayWhereCircuitIsOpen(t *testing.T) {
	t.Parallel()
	here, there := peerstats.New(), peerstats.New()
	there.Paused("billing", true)
	report := func(b *peerstats.Registry) peerstats.Report {
		return peerstats.NewReport(b.Producers(), b.Exchanges(), peerstats.Snapshot{}, 0)
	}
	p := New(Config{
		Admin:   func(string) Admin { return waiting{} },
		Peers:   func() Peers { return peerstats.Sum(report(here), report(there), report(here)) },
		Check:   func(context.Context) []Checked { return nil },
		Stats:   func(context.Context) ([]halfmsg.Stat, error) { return nil, nil },
		Owners:  func(context.Context) (halfmsg.Owners, error) { return halfmsg.Owners{}, nil },
		Overdue: func() time.Duration { return 0 },
	})
	mux := http.NewServeMux()
	p.Register(mux)
	for want, path := range map[string]string{
		"circuit open</span> <small>at 1 of 3</small>": "/", "sums of 3 coordinators": "/",
		"The circuit of the producer is open at 1 of 3 coordinators;": "/message?producer=billing&id=1",
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, as(access.Admin, httptest.NewRequest(http.MethodGet, path, nil)))
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s has no %q:\n%s", path, want, w.Body)
		}
	}
}

// waiting is an API with a pending message of a producer.
type waiting struct{ lister }

func (waiting) GetMessage(
	_ context.Context, r *adminv1.GetMessageRequest, _ ...grpc.CallOption,
) (*adminv1.GetMessageResponse, error) {
	return &adminv1.GetMessageResponse{Record: &adminv1.MessageRecord{
		Producer: r.GetProducer(), State: msghandlerv1.State_STATE_PENDING, Message: &msghandlerv1.Message{Id: r.GetId()},
	}}, nil
}

// A chart has round values and times beside it, and its values as a table and in a sentence.
func TestChartHasAxesAndTable(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0) // 01:46:40 UTC
	series := history.NewSeries(history.Ranges[0], []history.Bucket{
		history.NewBucket(now.Add(-30*time.Minute), map[string]string{"in": "14800", "p/orders": "4800 30 2"}),
		history.NewBucket(now.Add(-10*time.Second), map[string]string{"in": "40", "out": "10"}),
	}, now)
	c := flowCharts(series)[0]
	if got := fmt.Sprint(c.Scale); got != "[{0 0} {33.33333333333333 500} {66.66666666666666 1,000} {100 1,500}]" {
		t.Errorf("the scale is %s", got)
	}
	if len(c.Ticks) != 3 || tick(c.Ticks[0].At, series.Span()) != "01:00" {
		t.Errorf("the times are %v", c.Ticks)
	}
	if want := "Messages per second: in now 4.0, at most 1,480; out now 1.0, at most 1.0"; c.Text() != want {
		t.Errorf("the text is %q, want %q", c.Text(), want)
	}
	if len(c.Rows) != 2 || fmt.Sprint(c.Rows[0].Values) != "[1,480 0]" || minute(c.Rows[0].From) != "2001-09-09 01:16" {
		t.Errorf("the table is %v", c.Rows)
	}
	if n := strings.Count(c.Lines[0].Values, "|"); n != 360 || !strings.HasSuffix(c.Lines[0].Values, "|4.0|") {
		t.Errorf("%d values: %s", n, c.Lines[0].Values)
	}
	producer := producerCharts(series, "orders")
	for line, want := range map[chartLine]string{
		producer[0].Lines[0]: "in 0, max 480", producer[1].Lines[0]: "refused 0, max 2.0",
	} {
		if legend(line) != want {
			t.Errorf("the producer has %q, want %q", legend(line), want)
		}
	}
}

func TestBodiesAreShownInFittingForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body     []byte
		as, want string
		text     string
		cut      bool
	}{
		{[]byte(`{"a":[1]}`), "", "json", "{\n  \"a\": [\n    1\n  ]\n}", false},
		{[]byte(`{"a":[1]}`), "text", "text", `{"a":[1]}`, false},
		{[]byte(`{"a":`), "json", "text", `{"a":`, false},
		{[]byte{0, 1}, "", "hex", "00000000  00 01", false},
		{bytes.Repeat([]byte("é"), 3000), "", "text", "éé", true},
		{[]byte("x" + strings.Repeat("é", 3000)), "", "text", "xé", true},
		{bytes.Repeat([]byte{0xff}, 5000), "", "hex", "00000000  ff", true},
		{[]byte(`"` + strings.Repeat("y", 5000) + `"`), "", "json", `"yy`, true},
	} {
		got := previewOf(c.body, c.as)
		if got.As != c.want || !strings.HasPrefix(got.Text, c.text) || got.Cut != c.cut || got.Size != int64(len(c.body)) {
			t.Errorf("%.20q as %q: %s, cut %t, %.40q", c.body, c.as, got.As, got.Cut, got.Text)
		}
		if len(got.Text) > maxPreview || strings.Contains(got.Text, "\ufffd") {
			t.Errorf("%.20q as %q: %d bytes, or a character cut in two", c.body, c.as, len(got.Text))
		}
	}
}

func TestWhatHappensNext(t *testing.T) {
	t.Parallel()
	now := time.Now()
	due, lease := now.Add(time.Minute), now.Add(time.Second)
	for _, state := range halfmsg.States() {
		if state == halfmsg.None {
			continue
		}
		r := &adminv1.MessageRecord{
			Producer: "orders", State: msghandlerv1.State(state), DueTime: timestamppb.New(due),
			Message: &msghandlerv1.Message{Exchange: "shop"},
		}
		got := next(r, now)
		if state.HasLoop() != got.At.Equal(due) || strings.HasPrefix(got.What, "Nothing") == state.HasLoop() {
			t.Errorf("%s: %+v", state, got)
		}
		r.LeaseOwner, r.LeaseEndTime = "me", timestamppb.New(lease)
		held := next(r, now)
		if state.HasLoop() && (!held.At.Equal(lease) || held.Holder != "me" || held.Listed(now) != "leased") {
			t.Errorf("%s with a lease: %+v", state, held)
		}
		// A lease that has ended has no holder.
		r.LeaseEndTime, r.DueTime = timestamppb.New(now.Add(-time.Second)), timestamppb.New(now.Add(-time.Second))
		if ended := next(r, now); ended.Holder != "" || state.HasLoop() && ended.Listed(now) != "due" {
			t.Errorf("%s after its lease: %+v", state, ended)
		}
	}
}

// A message behind another one of its chain names that one, which is the one to look at.
func TestNextNamesWhatHoldsTheMessage(t *testing.T) {
	t.Parallel()
	now := time.Now()
	got := next(&adminv1.MessageRecord{Producer: "orders", State: msghandlerv1.State_STATE_SENDABLE, HeldBy: "1"}, now)
	if !strings.Contains(got.What, "orders/1") || got.Listed(now) != "held" {
		t.Errorf("%+v", got)
	}
}

// A SENDABLE message waits for its delay, for its turn after a refusal, or for its broker.
func TestNextTellsWhySendableMessageWaits(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for want, r := range map[string]*adminv1.MessageRecord{
		"after the delay": {Message: &msghandlerv1.Message{Delay: durationpb.New(time.Hour)}},
		"after the pause": {Message: &msghandlerv1.Message{Delay: durationpb.New(time.Hour)}, PublishAttempts: 2},
		"takes no messages now; then it is published to exchange (default) of broker events": {
			Message: &msghandlerv1.Message{Broker: "events"}, Parked: true,
		},
	} {
		r.State, r.DueTime = msghandlerv1.State_STATE_SENDABLE, timestamppb.New(now.Add(time.Minute))
		got := next(r, now)
		if !strings.Contains(got.What, want) || got.At.IsZero() != r.GetParked() ||
			(got.Listed(now) == "broker away") != r.GetParked() {
			t.Errorf("%v: %+v", r, got)
		}
	}
}

// Each state of need has a remedy that names what the error is about, and a page.
func TestEachCauseHasItsAdvice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state           halfmsg.State
		fault, do, page string
	}{
		{halfmsg.Dead, "312 NO_ROUTE", "bind a queue to the exchange shop for the routing key paid", "#msghandlerdead"},
		{halfmsg.Dead, "NOT_FOUND - no exchange", "declare the exchange shop", "msghandlerdead"},
		{halfmsg.Sendable, "ACCESS_REFUSED", "permission to write", "#refused-permission"},
		{halfmsg.Sendable, "", "", ""},
		{halfmsg.Pending, "", "", ""},
		{halfmsg.Pending, "Confirm of producer orders at x: Unavailable: transport: refused", "start it", "#producer-away"},
		{halfmsg.Pending, "the producer answered UNKNOWN", "ask the team of orders", "msghandlerpendingold"},
		{halfmsg.Abandoned, "the producer answered UNKNOWN", "ask the producer's team", "msghandlerabandoned"},
		{halfmsg.Abandoned, "Confirm of producer orders at x: Unavailable: transport: refused", "start it", "abandoned"},
		{halfmsg.Pending, "Confirm of producer orders at x: Internal: lock", "its database", "#producer-fails"},
		{halfmsg.Pending, "the producer answered UNAVAILABLE: it could not find out", "database", "#producer-fails"},
		{halfmsg.Acknowledged, "DeleteBusiness", "log of orders", "msghandlermarkersleft"},
		{halfmsg.Done, "", "", ""},
	} {
		got := known{c.state, c.fault, "orders", "shop", "paid"}.advised()
		if !strings.Contains(got.Do, c.do) || (c.do == "") != (got.Do == "") || !strings.HasSuffix(got.Page, c.page) {
			t.Errorf("%s, %s: %+v", c.state, c.fault, got)
		}
	}
}

// The pages of the runbook that the console links to have the anchors.
func TestAdviceLinksToEntriesOfRunbook(t *testing.T) {
	t.Parallel()
	alerts, err := os.ReadFile("../../../docs/reference/alerts.md")
	must.Succeed(t, err)
	all := []advice{onUnknownNote, onRefused, onDead, onAbandoned, onPendingOld, onBacklog}
	all = append(all, known{state: halfmsg.Acknowledged, fault: "x"}.advised())
	for _, a := range all {
		if !strings.Contains(string(alerts), "\n### "+a.Name+"\n") ||
			a.Page != cause.AlertsPage+"#"+strings.ToLower(a.Name) ||
			a.Why == "" || a.Do == "" || strings.HasSuffix(a.Do, ".") {
			t.Errorf("no entry: %+v", a)
		}
	}
}

// A full disk of Redis, and a hundred producers without a network, are one problem each.
func TestOneCauseIsOneProblem(t *testing.T) {
	t.Parallel()
	full := fmt.Errorf("%w: %w", halfmsg.ErrUnavailable, redisError("MISCONF Redis is configured to save RDB snapshots"))
	var d overviewData
	for _, check := range []string{"redis", "redis writes", "confirm loop", "send loop"} {
		part := cause.Part{}
		if strings.HasPrefix(check, "redis") {
			part = cause.Redis
		}
		d.Checks = append(d.Checks, Failed(check, part, full))
	}
	broker := cause.Part{System: "rabbitmq", Key: "amqp.url"}
	d.Checks = append(d.Checks, Failed("rabbitmq", broker, publish.ErrDisconnected))
	d.Exchanges = []exchangeLine{{peerstats.Exchange{Failure: publish.ErrDisconnected.Error()}, true}}
	for n := range 100 {
		name := fmt.Sprintf("producer-%d", n)
		d.Producers = append(d.Producers, producerLine{peerstats.Producer{
			Name:    name,
			Failure: "Confirm of producer " + name + " at 10.0.0.1:1: Unavailable: transport: connection refused",
		}, true})
	}
	d.Findings = []*adminv1.Finding{{Name: "redis-memory", Remedy: "more"}, {Name: "rabbitmq-alarm", Remedy: "a disk"}}
	now := time.Now()
	d.States = []stateLine{{State: halfmsg.Sendable, Count: 1, FirstDue: now.Add(-time.Hour)}}
	d.find(nil, time.Hour, now)
	want := map[string]int{"redis-disk": 6, "rabbitmq-alarm": 2, "producer-away": 100}
	if len(d.Problems) != len(want) {
		t.Fatalf("there are %d problems: %+v", len(d.Problems), d.Problems)
	}
	for _, p := range d.Problems {
		if n := 1 + len(p.Also); n != want[p.Name] {
			t.Errorf("%s stands for %d problems, want %d: %s", p.Name, n, want[p.Name], p.Text)
		}
		if all := "100 producers cannot be reached, such as producer-0: Unavailable: connection refused"; p.Name ==
			"producer-away" && p.Text != all {
			t.Errorf("the text of all is %q, want %q", p.Text, all)
		}
	}
}

// A problem with a cause of its own does not hide behind another problem.
func TestSecondCausesStayApart(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var d overviewData
	events := cause.Part{System: "rabbitmq", Name: "events", Key: "brokers.events.url"}
	d.Checks = []Checked{
		Failed("rabbitmq", cause.Part{System: "rabbitmq", Key: "amqp.url"}, publish.ErrBlocked),
		Failed("broker events", events, publish.ErrDisconnected),
	}
	stalled := peerstats.Exchange{Name: "shop", Broker: "events", Failure: publish.ErrStalled.Error()}
	d.Exchanges = []exchangeLine{{stalled, true}}
	d.Findings = []*adminv1.Finding{{Name: "redis-memory", Remedy: "more"}}
	d.Refused = 7
	d.Producers = []producerLine{{peerstats.Producer{
		Name: "orders", AnsweredAt: now.Add(-time.Minute),
		Failure: "Confirm of producer orders at 10.0.0.1:1: Unavailable: transport: connection refused",
	}, true}}
	d.States = []stateLine{{State: halfmsg.Pending, Count: 1}}
	d.find(nil, 3*time.Hour, now)
	var got []string
	for _, p := range d.Problems {
		if len(p.Also) > 0 {
			t.Errorf("behind %s there is %q", p.Name, p.Also)
		}
		got = append(got, p.Name)
	}
	slices.Sort(got)
	want := "[MsghandlerFull MsghandlerPendingOld producer-away queue-stalled rabbitmq-alarm rabbitmq-away redis-memory]"
	if fmt.Sprint(got) != want {
		t.Errorf("the problems are %v, want %s", got, want)
	}
}

// redisError is an answer of Redis, as the driver returns it.
type redisError string

func (a redisError) Error() string { return string(a) }
func (redisError) RedisError()     {}

func TestSelectionsRoundTrip(t *testing.T) {
	t.Parallel()
	counted := time.Unix(2e9, 1e6)
	for _, want := range []selection{
		{Action: actRetry, Filter: filter{operate.MessageText{
			State: "dead", Producer: "a&b=c", Broker: "events", Error: "<x> ?", OlderThan: "1m0s",
			ID: "o-1", RoutingKey: "paid", Header: "a=b", Cause: "no … &",
		}}, After: "t", tally: tally{Counted: counted, Count: 7, AtLeast: true}},
		{
			Action: actDiscard, Filter: ofState(halfmsg.Abandoned), Names: []halfmsg.Name{{Producer: "a", ID: "b/c&d"}},
			tally: tally{Counted: counted, Count: 1},
		},
	} {
		got, err := parseSelection(want.text())
		if err != nil || !got.Counted.Equal(counted) || got.Query() != want.Query() || got.Count != want.Count ||
			got.AtLeast != want.AtLeast || got.Filter != want.Filter {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}
