package server_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestAnOperatorSeesTheRecord(t *testing.T) {
	t.Parallel()
	h := open(t)
	at := time.UnixMilli(1_700_000_000_123)
	name := halfmsg.Name{Producer: "orders", ID: "1"}
	h.store.records[name] = halfmsg.Record{
		Message: halfmsg.Message{
			Name: name, Exchange: "shop", RoutingKey: "paid", ContentType: "text/plain", Headers: map[string]string{"a": "b"},
			Body: []byte("x"), Delay: time.Minute, CallbackTarget: "dns:///orders:9000",
		},
		State: halfmsg.Pending, CreatedAt: at, UpdatedAt: at, DueAt: at, ConfirmAttempts: 3, PublishAttempts: 4,
		LastError: "e", LeaseOwner: "me", LeaseUntil: at,
	}
	answer, err := h.operators.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
	must.Succeed(t, err)
	r, m := answer.GetRecord(), answer.GetRecord().GetMessage()
	got := fmt.Sprint(
		r.GetProducer(),
		m.GetId(),
		m.GetExchange(),
		m.GetRoutingKey(),
		m.GetContentType(),
		m.GetHeaders(),
		string(m.GetBody()),
		m.GetDelay().AsDuration(),
		r.GetCallbackTarget(),
		r.GetState(),
		r.GetConfirmAttempts(),
		r.GetPublishAttempts(),
		r.GetLastError(),
		r.GetLeaseOwner(),
	)
	want := fmt.Sprint(
		"orders", "1", "shop", "paid", "text/plain", map[string]string{"a": "b"}, "x", time.Minute,
		"dns:///orders:9000", msghandlerv1.State_STATE_PENDING, int32(3), int32(4), "e", "me",
	)
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for what, moment := range map[string]interface{ AsTime() time.Time }{
		"create": r.GetCreateTime(), "update": r.GetUpdateTime(), "due": r.GetDueTime(), "lease": r.GetLeaseEndTime(),
	} {
		if !moment.AsTime().Equal(at) {
			t.Errorf("%s time is %v", what, moment.AsTime())
		}
	}
	_, err = h.operators.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "others", Id: "1"})
	wantCode(t, err, codes.NotFound)
}

func TestAnOperatorSeesTheTimeline(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "1", halfmsg.Dead)
	name := &adminv1.MessageName{Producer: "orders", Id: "1"}
	_, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{name}},
		Reason:    "the exchange is back",
	})
	must.Succeed(t, err)
	answer, err := h.operators.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
	must.Succeed(t, err)
	events := answer.GetRecord().GetEvents()
	if len(events) != 2 || events[0].GetKind() != adminv1.EventKind_EVENT_KIND_SEND ||
		!events[0].GetFirstTime().AsTime().Equal(time.Unix(1e9, 0)) {
		t.Fatalf("got %v", events)
	}
	retry := events[1]
	if retry.GetKind() != adminv1.EventKind_EVENT_KIND_RETRY || retry.GetCause() != "the exchange is back" ||
		retry.GetActor() == "" ||
		retry.GetCount() != 1 ||
		!retry.GetLastTime().AsTime().Equal(time.Unix(2e9, 0)) {
		t.Errorf("of the retry got %v", retry)
	}
	page, err := h.operators.ListMessages(
		t.Context(),
		&adminv1.ListMessagesRequest{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_SENDABLE}},
	)
	if err != nil || len(page.GetRecords()) != 1 || page.GetRecords()[0].GetEvents() != nil {
		t.Errorf("a list holds %v, %v", page, err)
	}
}

func TestAListingIsPaged(t *testing.T) {
	t.Parallel()
	h := open(t)
	for i := range 25 {
		h.store.put("orders", fmt.Sprintf("%02d", i), halfmsg.Dead)
		h.store.put("others", fmt.Sprintf("%02d", i), halfmsg.Dead)
	}
	r := &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD, Producer: "orders"},
		PageSize: 10,
	}
	var ids []string
	for {
		page, err := h.operators.ListMessages(t.Context(), r)
		must.Succeed(t, err)
		for _, record := range page.GetRecords() {
			ids = append(ids, record.GetMessage().GetId())
		}
		if r.PageToken = page.GetNextPageToken(); r.GetPageToken() == "" {
			break
		}
		other := &adminv1.ListMessagesRequest{
			Filter:    &adminv1.MessageFilter{State: r.GetFilter().GetState()},
			PageSize:  10,
			PageToken: r.GetPageToken(),
		}
		_, err = h.operators.ListMessages(t.Context(), other)
		wantCode(t, err, codes.InvalidArgument) // a token of another listing
	}
	if len(ids) != 25 || !slices.IsSorted(ids) {
		t.Errorf("got %q", ids)
	}
}

func TestStats(t *testing.T) {
	t.Parallel()
	answer, err := open(t).operators.GetStats(t.Context(), &adminv1.GetStatsRequest{})
	if err != nil || len(answer.GetStates()) != 2 {
		t.Fatalf("got %v, %v", answer, err)
	}
	pending, dead := answer.GetStates()[0], answer.GetStates()[1]
	if pending.GetCount() != 2 || pending.GetOldestCreateTime().GetSeconds() != 1e9 || dead.GetOldestCreateTime() != nil ||
		pending.GetFirstDueTime().GetSeconds() != 1e9+6 || dead.GetFirstDueTime() != nil {
		t.Errorf("got %v", answer)
	}
}

// logged is a log that a test reads.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestRetryAndDiscardByName(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep)
	h.store.put("orders", "dead", halfmsg.Dead)
	h.store.put("orders", "lost", halfmsg.Abandoned)
	h.store.put("orders", "done", halfmsg.Done)
	names := func(ids ...string) (all []*adminv1.MessageName) {
		for _, id := range ids {
			all = append(all, &adminv1.MessageName{Producer: "orders", Id: id})
		}
		return all
	}
	codesOf := func(outcomes []*msghandlerv1.Outcome) (all []codes.Code) {
		for _, o := range outcomes {
			all = append(all, codes.Code(o.GetCode()))
		}
		return all
	}
	retried, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: names("dead", "lost", "done", "none", "bad id")},
		Reason:    "the queue is back",
	})
	want := []codes.Code{0, 0, codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument}
	if err != nil || retried.GetChanged() != 2 || !slices.Equal(codesOf(retried.GetOutcomes()), want) {
		t.Errorf("got %v, %v", retried, err)
	}
	if !slices.Equal(h.woken, []halfmsg.State{halfmsg.Sendable, halfmsg.Pending}) {
		t.Errorf("woken: %v", h.woken)
	}
	discarded, err := h.operators.DiscardMessages(t.Context(), &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: names("dead", "lost", "lost")},
		Reason:    "test orders",
	})
	want = []codes.Code{codes.FailedPrecondition, 0, codes.NotFound}
	if err != nil || discarded.GetChanged() != 1 || !slices.Equal(codesOf(discarded.GetOutcomes()), want) {
		t.Errorf("got %v, %v", discarded, err)
	}
	lines := trail.take()
	for i, want := range []string{
		`retry done /orders [orders/dead orders/lost] filter="" reason="the queue is back"`,
		`discard done /orders [orders/lost] filter="" reason="test orders"`,
	} {
		if !strings.Contains(lines[i], want) {
			t.Errorf("recorded %q, want %s", lines, want)
		}
	}
}

func TestRetryAndDiscardByState(t *testing.T) {
	t.Parallel()
	trail := &recorded{}
	h := open(t, trail.keep)
	const all = 1200
	for i := range all {
		h.store.put("orders", fmt.Sprint(i), halfmsg.Dead)
	}
	h.store.put("others", "x", halfmsg.Dead)
	dead := msghandlerv1.State_STATE_DEAD
	first, err := h.operators.DiscardMessages(
		t.Context(),
		&adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, Producer: "orders"}},
		},
	)
	if err != nil || first.GetChanged() != 1000 || first.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", first, err)
	}
	if h.store.discardedFrom != halfmsg.Dead { // a message that has left the state since stays
		t.Errorf("discarded messages in state %s", h.store.discardedFrom)
	}
	if n := strings.Count(fmt.Sprint(trail.take()), "orders/"); n != 1000 {
		t.Errorf("%d are recorded of 1,000 discarded messages", n)
	}
	second, err := h.operators.RetryMessages(
		t.Context(),
		&adminv1.RetryMessagesRequest{
			Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, Producer: "orders"}},
			Limit:     10,
		},
	)
	if err != nil || second.GetChanged() != 10 || second.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", second, err)
	}
	third, err := h.operators.RetryMessages(
		t.Context(),
		&adminv1.RetryMessagesRequest{
			Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, Producer: "orders"}},
			Limit:     10_000,
		},
	)
	if err != nil || third.GetChanged() != 190 || third.GetNextPageToken() != "" {
		t.Fatalf("got %v, %v", third, err)
	}
	if h.store.get("others", "x").State != halfmsg.Dead {
		t.Error("another producer's message was changed")
	}
}

// When the store fails for a page in the middle, the caller learns that there is more, from that page on.
func TestAFailedPageIsNotSkipped(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]error{"": nil, "whole": halfmsg.ErrUnavailable} {
		h := open(t)
		h.fill(1500, 1_000_000)
		calls := 0
		h.store.before = func(call string) {
			h.store.mu.Lock()
			defer h.store.mu.Unlock()
			h.store.fail = nil
			if call == "Retry" {
				if calls++; calls == 2 {
					h.store.fail = fail
				}
			}
		}
		request := &adminv1.RetryMessagesRequest{
			Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD}},
			Limit:     10_000,
			Reason:    "x",
		}
		retried := int64(0)
		for more := true; more; {
			answer, err := h.operators.RetryMessages(t.Context(), request)
			must.Succeed(t, err)
			retried += answer.GetChanged()
			request.PageToken = answer.GetNextPageToken()
			more = request.GetPageToken() != ""
			if more && request.GetPageToken() == "" {
				t.Fatal("there is more, and no token leads to it")
			}
		}
		if retried != 1500 {
			t.Errorf("%q: %d of 1500 were retried when all was said to be done", name, retried)
		}
	}
}

// Nor when it fails for single messages of a page, or for the first one, to which no token leads.
func TestPartlyFailedFirstPageIsError(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.fill(10, 1_000_000)
	h.store.mu.Lock()
	h.store.away = "00007"
	h.store.mu.Unlock()
	request := &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD}},
		Limit:     100,
		Reason:    "x",
	}
	_, err := h.operators.RetryMessages(t.Context(), request)
	wantCode(t, err, codes.Unavailable)
	h.store.mu.Lock()
	h.store.away = ""
	h.store.mu.Unlock()
	answer, err := h.operators.RetryMessages(t.Context(), request)
	if err != nil || answer.GetChanged() != 1 || answer.GetNextPageToken() != "" {
		t.Errorf("once more: %v, %v; want the message that was out of reach", answer, err)
	}
}

// Redis may hold any number as a time: the answer stays JSON.
func TestTimesBeyondYear9999AreTold(t *testing.T) {
	t.Parallel()
	h := open(t)
	name := halfmsg.Name{Producer: "orders", ID: "1"}
	for _, ms := range []int64{math.MaxInt64, 253402300800000, -62135596800001, math.MinInt64} {
		at := time.UnixMilli(ms)
		h.store.records[name] = halfmsg.Record{
			Message: halfmsg.Message{Name: name}, State: halfmsg.Pending,
			CreatedAt: at, UpdatedAt: at, DueAt: at, LeaseUntil: at, ErrorAt: at,
		}
		answer, err := h.operators.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
		must.Succeed(t, err)
		if _, err := protojson.Marshal(answer); err != nil {
			t.Errorf("%d: %v", ms, err)
		}
	}
}
