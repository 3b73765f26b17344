package console

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/chromedp/chromedp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/browser"
)

// scene is the content of a console without a coordinator: an invented hour, and messages that no API would have
// taken.
type scene struct {
	board     *peerstats.Registry
	buckets   []history.Bucket
	stats     []halfmsg.Stat
	checks    []pages.Checked
	owners    halfmsg.Owners
	fleet     []*adminv1.Coordinator
	undecided time.Duration
	findings  []*adminv1.Finding
	records   []*adminv1.MessageRecord
	audited   []*adminv1.AuditRecord
	problems  []*adminv1.Finding
	// groups are of the messages by state, of grouped in all.
	groups   map[msghandlerv1.State][]*adminv1.MessageGroup
	grouped  int64
	finished []*adminv1.FinishedMessage
	tray
	// reader looks at the scene.
	reader access.Identity
}

// serve shows the scene until the test ends.
func (s *scene) serve(t *testing.T) string {
	t.Helper()
	return serve(t, s.pages())
}

// serve lets a server answer until the test ends.
func serve(t *testing.T, handler http.Handler) (address string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func (s *scene) pages() http.Handler {
	mux := http.NewServeMux()
	pages.New(pages.Config{
		Instance: "shop-coordinator-0", Version: "v1.0.0", Peers: func() pages.Peers { return s.board },
		Charts: func(_ context.Context, r history.Range) (history.Series, error) {
			return history.NewSeries(r, s.buckets, time.Now()), nil
		},
		Admin:        func(string) pages.Admin { return s },
		Check:        func(context.Context) []pages.Checked { return s.checks },
		Stats:        func(context.Context) ([]halfmsg.Stat, error) { return s.stats, nil },
		Overdue:      func() time.Duration { return s.undecided },
		Findings:     func() []*adminv1.Finding { return s.findings },
		Owners:       func(context.Context) (halfmsg.Owners, error) { return s.owners, nil },
		Coordinators: func() []*adminv1.Coordinator { return s.fleet },
	}).Register(mux)
	mux.HandleFunc("GET /static/", pages.Static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), s.reader)))
	})
}

func (s *scene) GetMessage(
	_ context.Context, r *adminv1.GetMessageRequest, _ ...grpc.CallOption,
) (*adminv1.GetMessageResponse, error) {
	for _, record := range s.records {
		if record.GetProducer() == r.GetProducer() && record.GetMessage().GetId() == r.GetId() {
			return &adminv1.GetMessageResponse{Record: record}, nil
		}
	}
	return nil, halfmsg.ErrNotFound
}

func (s *scene) ListMessages(
	_ context.Context, r *adminv1.ListMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.ListMessagesResponse, error) {
	page := &adminv1.ListMessagesResponse{}
	for _, record := range s.records {
		if record.GetState() == r.GetFilter().GetState() {
			page.Records = append(page.Records, record)
		}
	}
	if len(page.GetRecords()) > 3 {
		page.NextPageToken = "next"
	}
	return page, nil
}

func (s *scene) GroupMessages(
	_ context.Context, r *adminv1.GroupMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.GroupMessagesResponse, error) {
	groups := slices.DeleteFunc(slices.Clone(s.groups[r.GetFilter().GetState()]), func(g *adminv1.MessageGroup) bool {
		exchange := r.GetFilter().GetExchange()
		return exchange != "" && exchange != g.GetExchange()
	})
	return &adminv1.GroupMessagesResponse{Groups: groups, SampleSize: 2000, TotalSize: s.grouped}, nil
}

func (s *scene) FindMessages(
	_ context.Context, r *adminv1.FindMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.FindMessagesResponse, error) {
	found := &adminv1.FindMessagesResponse{}
	for _, record := range s.records {
		if record.GetMessage().GetId() == r.GetId() {
			found.Records = append(found.Records, record)
		}
	}
	return found, nil
}

func (s *scene) RetryMessages(
	_ context.Context, r *adminv1.RetryMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.RetryMessagesResponse, error) {
	names := r.GetSelection().GetNames()
	n := int64(max(len(names), 296))
	return &adminv1.RetryMessagesResponse{Changed: n, Outcomes: make([]*msghandlerv1.Outcome, len(names))}, nil
}

func (s *scene) DiscardMessages(
	_ context.Context, r *adminv1.DiscardMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.DiscardMessagesResponse, error) {
	return &adminv1.DiscardMessagesResponse{Changed: int64(len(r.GetSelection().GetNames()))}, nil
}

func (s *scene) ListAudit(
	context.Context, *adminv1.ListAuditRequest, ...grpc.CallOption,
) (*adminv1.ListAuditResponse, error) {
	return &adminv1.ListAuditResponse{Records: s.audited, NextPageToken: "next"}, nil
}

// hostile is a malicious producer's text, in every field.
const hostile = "</script><script>window.hacked=1</script>\"'><img src=x onerror=\"window.hacked=1\"> " +
	"${window.hacked=1} \u202Etxt.exe \x00\x1b[31m \U0001F4A3 é"

func TestHostileContentIsEscaped(t *testing.T) {
	now := timestamppb.Now()
	s := &scene{board: peerstats.New(), reader: access.Identity{Kind: access.Token, Name: hostile, Role: access.Admin}}
	s.checks = []pages.Checked{{Name: hostile, Error: hostile, Note: hostile}}
	s.owners.All = []halfmsg.Owner{{Instance: hostile}}
	s.fleet = []*adminv1.Coordinator{{Instance: hostile + "2", Version: hostile}}
	s.stats = []halfmsg.Stat{{State: halfmsg.Dead, Count: 5, OldestAt: time.Now()}}
	s.findings = []*adminv1.Finding{{Name: hostile, What: hostile, Why: hostile, Remedy: hostile}}
	s.groups = map[msghandlerv1.State][]*adminv1.MessageGroup{msghandlerv1.State_STATE_DEAD: {{
		Producer: hostile, Broker: hostile, Exchange: hostile, Cause: hostile, ExampleId: hostile, ExampleError: hostile,
		OldestCreateTime: now, NewestCreateTime: now, Count: 7,
	}}}
	s.board.Confirmed(hostile, 1, nil, time.Second, fmt.Errorf("%s", hostile))
	s.board.Failed(hostile, hostile, fmt.Errorf("%s", hostile))
	for i, body := range [][]byte{
		[]byte(hostile),
		{0, 1, 2, 0xff, '<', 's', 'c'},
		fmt.Appendf(nil, `{"a":%q}`, "</script><script>window.hacked=1</script>"), nil,
		[]byte(strings.Repeat("é", 5000)),
	} {
		s.records = append(s.records, &adminv1.MessageRecord{
			Producer: hostile, State: msghandlerv1.State_STATE_DEAD, CreateTime: now, UpdateTime: now, DueTime: now,
			CallbackTarget: hostile, LastError: hostile, LeaseOwner: hostile, LeaseEndTime: now,
			Events: []*adminv1.Event{{Kind: 999, FirstTime: now, LastTime: now, Count: 2, Actor: hostile, Cause: hostile}},
			Message: &msghandlerv1.Message{
				Id: fmt.Sprint(hostile, i), Exchange: hostile, RoutingKey: hostile, ContentType: hostile, Body: body,
				Headers: map[string]string{hostile: hostile},
			},
		})
	}
	for _, result := range []adminv1.AuditResult{2, 3, 999} { // done, refused, and one of a newer coordinator
		s.audited = append(s.audited, &adminv1.AuditRecord{
			Time: now, Actor: hostile, Address: hostile, Method: hostile, Producer: hostile, Count: 9,
			Names: []string{hostile}, Filter: hostile, Reason: hostile, Result: result, Cause: hostile,
		})
	}
	for _, record := range s.records {
		s.finished = append(s.finished, &adminv1.FinishedMessage{
			Producer: hostile, Message: record.GetMessage(), FinishTime: now, CreateTime: now, Entry: hostile, Damage: hostile,
			Replayable: true,
		})
	}
	b := browse(t, s.serve(t))
	harmless := func(where string) {
		t.Helper()
		const hacked = `window.hacked !== undefined || document.querySelectorAll("main script, main img").length > 0`
		if browser.Eval[bool](b, hacked) {
			t.Errorf("%s: the content was not only text", where)
		}
		b.Shows("<script>window.hacked=1</script>", `\u202etxt.exe`, `\x1b[31m`)
	}
	b.Open("/")
	harmless("the overview")
	b.Open("/audit?by=" + url.QueryEscape(hostile))
	harmless("the audit trail")
	b.Open("/finished")
	harmless("the finished messages")
	b.Click(".messages tbody a")
	harmless("the archived message")
	b.Click(`form[action="/replay"] button`)
	harmless("the replay")
	s.tray = trayOf(hostile)
	for _, path := range []string{
		"/letters", "/letters?queue=payments", "/letter",
		"/letters/change?action=replay&all=1&queue=" + url.QueryEscape(hostile),
	} {
		b.Open(path)
		harmless(path)
	}
	b.Open("/?producer=" + url.QueryEscape(hostile))
	harmless("the charts")
	b.Open("/messages?state=dead")
	harmless("the list")
	for i := range s.records {
		b.Open("/messages?state=dead")
		b.Click(fmt.Sprintf("#list tbody tr:nth-child(%d) a", i+1))
		harmless("message " + fmt.Sprint(i))
		text := browser.Eval[string](b, `document.querySelector(".timeline").innerText`)
		if strings.Count(text, "<script>window.hacked=1</script>") != 2 { // actor and cause
			t.Errorf("the timeline shows\n%s", text)
		}
		b.Shows([]string{"onerror=", "00000000  00 01 02 ff 3c 73 63", `"a": "</script>`, "Empty", "cut at 4 KiB"}[i])
	}
	b.Open("/messages?state=dead")
	b.Do(chromedp.Click(chromedp.CSS("#pick-all")))
	b.Click(`.bar button[value=discard]`)
	harmless("the count")
	b.Open("/messages?state=dead&error=" + strings.Repeat("%3Cscript%3Ewindow.hacked=1%3C/script%3E", 2))
	if browser.Eval[bool](b, `window.hacked !== undefined`) {
		t.Error("a filter ran")
	}
}

// busy is a shop on a bad day: a queue's exchange is gone, and one producer does not answer.
func busy() *scene {
	now := time.Now()
	s := &scene{board: peerstats.New(), reader: access.Identity{Kind: access.Anonymous, Role: access.Admin}}
	for i := range 350 {
		x := float64(i) / 350
		wave := 1 + .25*math.Sin(9*x) + .08*math.Sin(71*x)
		outage := 0.0
		if x > .7 {
			outage = (x - .7) / .3
		}
		number := func(n float64) string { return fmt.Sprint(int64(n)) }
		at := history.Ranges[0].Begin(now.Add(-time.Duration(350-i) * history.Interval))
		s.buckets = append(s.buckets, history.NewBucket(at, map[string]string{
			"in": number(4200 * wave), "out": number(4200 * wave * (1 - .35*outage)),
			"l16": "980", "l" + number(23+8*outage+wave): "20",
			"s/pending": number(900*wave + 11000*outage), "s/sendable": number(60 * wave),
			"s/acknowledged": number(20 * wave), "s/abandoned": "2", "s/dead": number(312 * outage),
			"p/orders": number(3000*wave) + " " + number(3000*wave) + " 0",
		}))
	}
	s.stats = []halfmsg.Stat{
		{State: halfmsg.Pending, Count: 11873, OldestAt: now.Add(-18*time.Minute - 12*time.Second)},
		{State: halfmsg.Sendable, Count: 58, OldestAt: now.Add(-400 * time.Millisecond)},
		{State: halfmsg.Abandoned, Count: 2, OldestAt: now.Add(-26 * time.Hour)},
		{State: halfmsg.Dead, Count: 312, OldestAt: now.Add(-17 * time.Minute)},
		{State: halfmsg.Acknowledged, Count: 23, OldestAt: now.Add(-90 * time.Millisecond)},
	}
	s.undecided = 18*time.Minute + 6*time.Second
	s.owners = halfmsg.Owners{Held: 1912, All: []halfmsg.Owner{
		{Instance: "shop-coordinator-0", Leases: 388, Until: now.Add(28 * time.Second)},
		{Instance: "shop-coordinator-1", Leases: 412, Until: now.Add(29 * time.Second)},
	}}
	s.fleet = []*adminv1.Coordinator{
		coordinatorOf("shop-coordinator-0", running, now.Add(-75*time.Hour), now, 0),
		coordinatorOf("shop-coordinator-1", running, now.Add(-11*time.Minute), now, 1),
		coordinatorOf("shop-coordinator-2", missing, now.Add(-75*time.Hour), now.Add(-6*time.Minute), 0),
	}
	for _, name := range []string{"redis", "redis settings", "rabbitmq", "confirm loop", "send loop"} {
		s.checks = append(s.checks, pages.Checked{Name: name, OK: true})
	}
	s.board.Confirmed("billing", 1, nil, 2*time.Second, fmt.Errorf("connection refused: dns:///billing.svc:9000"))
	s.board.Paused("billing", true)
	s.board.Confirmed("orders", 1, map[string]halfmsg.Verdict{"1": halfmsg.VerdictCommitted}, 4*time.Millisecond, nil)
	s.board.Confirmed("stock", 1, map[string]halfmsg.Verdict{"1": halfmsg.VerdictUnknown}, 11*time.Millisecond, nil)
	s.board.Published("", "orders", halfmsg.Acked, 1_482_113)
	s.board.Published("", "stock", halfmsg.Acked, 98_420)
	s.board.Published("", "invoices", halfmsg.Refused, 936)
	s.board.Failed("", "invoices", fmt.Errorf("%s", noExchange))
	s.audited = trail(now)
	for i := range 60 {
		s.records = append(s.records, dead(i, now))
	}
	other := proto.CloneOf(s.records[0]) // another producer with the same id
	other.Producer = "stock"
	s.records = append(s.records, other)
	s.groups, s.grouped = groupsOf(now), 2000
	for i := range 3 {
		m := s.records[i].GetMessage()
		s.finished = append(s.finished, &adminv1.FinishedMessage{
			Producer: "orders", Message: m, CreateTime: timestamppb.New(now.Add(-time.Minute)), Entry: "1-1", Replayable: true,
			CommitTime: timestamppb.New(now.Add(-time.Minute)), FinishTime: timestamppb.New(now), Copies: 1,
			Ending: adminv1.Ending_ENDING_DONE,
		})
	}
	s.tray = trayOf("payments")
	return s
}

// groupsOf are the groups of the messages that are dead and pending.
func groupsOf(now time.Time) map[msghandlerv1.State][]*adminv1.MessageGroup {
	group := func(n int64, producer, exchange, id, fault string) *adminv1.MessageGroup {
		return &adminv1.MessageGroup{
			Producer: producer, Exchange: exchange, Count: n, ExampleId: id, ExampleError: fault,
			Cause:            halfmsg.Cause(fault, halfmsg.Name{ID: id}),
			OldestCreateTime: timestamppb.New(now.Add(-17 * time.Minute)),
			NewestCreateTime: timestamppb.New(now.Add(-40 * time.Second)),
		}
	}
	return map[msghandlerv1.State][]*adminv1.MessageGroup{
		msghandlerv1.State_STATE_DEAD: {
			group(296, "orders", "invoices", "2026-481100", noExchange),
			group(14, "stock", "stock", "s-20045", "returned by the broker: 312 NO_ROUTE"),
			group(2, "orders", "stock", "2026-470017", "the headers have 131090 bytes, more than the 98304 that fit"),
		},
		msghandlerv1.State_STATE_PENDING: {
			group(11400, "billing", "invoices", "b-1", "Confirm of producer billing at dns:///billing.svc:9000: "+
				`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: `+
				`dial tcp 10.2.3.4:9000: connect: connection refused"`),
			group(473, "orders", "invoices", "2026-481160", ""),
		},
	}
}

// trail is an afternoon of operators, and of a stranger.
func trail(now time.Time) []*adminv1.AuditRecord {
	at := func(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-ago)) }
	discard := func(names ...string) *adminv1.AuditRecord {
		return &adminv1.AuditRecord{
			Time: at(26 * time.Minute), Actor: "jwt:anna@example.com", Address: "10.20.3.4:51234",
			IdentityKind: adminv1.IdentityKind_IDENTITY_KIND_JWT, Channel: adminv1.AuditChannel_AUDIT_CHANNEL_CONSOLE,
			Action: adminv1.AuditAction_AUDIT_ACTION_DISCARD, Producer: "orders", Names: names, Count: int64(len(names)),
			Result: adminv1.AuditResult_AUDIT_RESULT_DONE,
			Reason: "test orders of the load test, agreed with the orders team (OPS-1742)",
		}
	}
	byFilter := discard("orders/2026-481100", "orders/2026-481101")
	byFilter.Count, byFilter.Filter = 312, `state=dead producer="orders" exchange="invoices"`
	byFilter.Action = adminv1.AuditAction_AUDIT_ACTION_RETRY
	byFilter.Instance = "shop-coordinator-0"
	byFilter.Time, byFilter.Reason = at(4*time.Minute), "the exchange invoices is back"
	return []*adminv1.AuditRecord{
		byFilter,
		{
			Time: at(9 * time.Minute), LastTime: at(8 * time.Minute), Address: "203.0.113.77", Count: 1841,
			IdentityKind: adminv1.IdentityKind_IDENTITY_KIND_ANONYMOUS, Channel: adminv1.AuditChannel_AUDIT_CHANNEL_GRPC,
			Method: "/msghandler.admin.v1.AdminService/DiscardMessages",
			Result: adminv1.AuditResult_AUDIT_RESULT_REFUSED, Refusal: adminv1.RefusalKind_REFUSAL_KIND_IDENTITY,
			Cause: "an anonymous caller may not use DiscardMessages of the admin API; show a client certificate or a token",
		},
		discard("orders/2026-470001"),
		{
			Time: at(3 * time.Hour), Channel: adminv1.AuditChannel_AUDIT_CHANNEL_CONFIG,
			Action:   adminv1.AuditAction_AUDIT_ACTION_RELOAD,
			Instance: "shop-coordinator-1", Result: adminv1.AuditResult_AUDIT_RESULT_FAILED,
			Cause: "producers.billing.quota: \"many\" is no number; the coordinator goes on with the configuration before it",
		},
		{
			Time: at(5 * time.Hour), Actor: "dns:billing.svc.cluster.local", Address: "10.20.8.15",
			IdentityKind: adminv1.IdentityKind_IDENTITY_KIND_CERTIFICATE, Channel: adminv1.AuditChannel_AUDIT_CHANNEL_GRPC,
			Method: "/msghandler.v1.MessageHandlerService/Submit", Count: 1, Producer: "orders",
			Result: adminv1.AuditResult_AUDIT_RESULT_REFUSED, Refusal: adminv1.RefusalKind_REFUSAL_KIND_PRODUCER,
			Cause: "certificate dns:billing.svc.cluster.local may not call as producer \"orders\"",
		},
	}
}

const noExchange = "NOT_FOUND - no exchange 'invoices' in vhost '/'"

func dead(i int, now time.Time) *adminv1.MessageRecord {
	body, _ := json.Marshal(map[string]any{
		"order": 481100 + i, "customer": map[string]any{"name": "Zoë Ångström", "country": "SE"}, "currency": "EUR",
		"total": 129.9,
		"lines": []map[string]any{{"sku": "A-1742", "count": 2}, {"sku": "B-0099", "count": 1}},
	})
	at := func(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-ago)) }
	return &adminv1.MessageRecord{
		Producer: "orders", State: msghandlerv1.State_STATE_DEAD,
		CreateTime: at(17*time.Minute - time.Duration(i)*7*time.Second),
		UpdateTime: at(14*time.Minute - time.Duration(i)*7*time.Second), CallbackTarget: "dns:///orders.svc:9000",
		ConfirmAttempts: 2, PublishAttempts: 4,
		LastError: noExchange,
		Events: []*adminv1.Event{
			{Kind: adminv1.EventKind_EVENT_KIND_SEND, FirstTime: at(17 * time.Minute), LastTime: at(17 * time.Minute), Count: 1},
			{
				Kind: adminv1.EventKind_EVENT_KIND_UNKNOWN, FirstTime: at(17*time.Minute - 6*time.Second),
				LastTime: at(17*time.Minute - 12*time.Second),
				Count:    2,
				Actor:    "shop-coordinator-1", Cause: "the producer answered UNKNOWN",
			},
			{
				Kind: adminv1.EventKind_EVENT_KIND_TAKEN_OVER, FirstTime: at(16*time.Minute - 8*time.Second),
				LastTime: at(16*time.Minute - 8*time.Second),
				Count:    1,
				Actor:    "shop-coordinator-0", Cause: "the lease of shop-coordinator-1 ended",
			},
			{
				Kind: adminv1.EventKind_EVENT_KIND_COMMITTED, FirstTime: at(16*time.Minute - 9*time.Second),
				LastTime: at(16*time.Minute - 9*time.Second),
				Count:    1,
			},
			{
				Kind: adminv1.EventKind_EVENT_KIND_REFUSED, FirstTime: at(16*time.Minute - 9*time.Second),
				LastTime: at(15*time.Minute - 14*time.Second),
				Count:    3,
				Actor:    "shop-coordinator-0", Cause: noExchange,
			},
			{
				Kind: adminv1.EventKind_EVENT_KIND_EXHAUSTED, FirstTime: at(14 * time.Minute), LastTime: at(14 * time.Minute),
				Count: 1,
				Actor: "shop-coordinator-0",
				Cause: noExchange,
			},
		},
		Message: &msghandlerv1.Message{
			Id: fmt.Sprintf("2026-%06d", 481100+i), Exchange: "invoices", RoutingKey: "invoice.due",
			ContentType: "application/json",
			Body:        body, Headers: map[string]string{
				"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"tenant":      "nordic",
			},
		},
	}
}

const (
	running = adminv1.CoordinatorState_COORDINATOR_STATE_RUNNING
	missing = adminv1.CoordinatorState_COORDINATOR_STATE_MISSING
)

// coordinatorOf is a coordinator of the scene.
func coordinatorOf(
	instance string, state adminv1.CoordinatorState, started, seen time.Time, restarts int64,
) *adminv1.Coordinator {
	return &adminv1.Coordinator{
		Instance: instance, Version: "v1.0.0", State: state, StartTime: timestamppb.New(started),
		LastSeenTime: timestamppb.New(seen), Restarts: restarts, Self: instance == "shop-coordinator-0",
	}
}
