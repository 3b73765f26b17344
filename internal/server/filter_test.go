package server_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// fill puts n dead messages into the store, of which one in so many has lost its exchange.
func (h *house) fill(n, oneIn int) {
	for i := range n {
		name := halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("%05d", i)}
		r := halfmsg.Record{
			Message: halfmsg.Message{Name: name, Exchange: "shop"},
			State:   halfmsg.Dead, CreatedAt: time.Unix(1e9, 0), LastError: "nack",
		}
		if i%oneIn == 0 {
			r.LastError = "NOT_FOUND - no exchange 'shop'"
		}
		h.store.records[name] = r
	}
}

func TestAFilteredListingLooksInSteps(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.fill(15_000, 100)
	r := &adminv1.ListMessagesRequest{
		Filter: &adminv1.MessageFilter{
			State: msghandlerv1.State_STATE_DEAD, ErrorContains: "no exchange",
			Exchange: "shop", MinAge: durationpb.New(time.Hour),
		},
		PageSize: 1000,
	}
	var pages []int
	for {
		page, err := h.operators.ListMessages(t.Context(), r)
		must.Succeed(t, err)
		pages = append(pages, len(page.GetRecords()))
		if r.PageToken = page.GetNextPageToken(); r.GetPageToken() == "" {
			break
		}
		r.Filter.MinAge.Seconds++ // a token is good with any age, which only cuts off the end
		other := &adminv1.ListMessagesRequest{
			Filter:    &adminv1.MessageFilter{State: r.GetFilter().GetState(), ErrorContains: "other"},
			PageToken: r.GetPageToken(),
		}
		_, err = h.operators.ListMessages(t.Context(), other)
		wantCode(t, err, codes.InvalidArgument) // a token of another listing
	}
	if !slices.Equal(pages, []int{50, 50, 50}) {
		t.Errorf("pages of %d", pages)
	}
	for _, wrong := range []*adminv1.MessageFilter{
		{State: r.GetFilter().GetState(), ErrorContains: strings.Repeat("é", 201)},
		{State: r.GetFilter().GetState(), Exchange: strings.Repeat("é", 128)},
		{State: r.GetFilter().GetState(), MinAge: durationpb.New(-time.Second)},
	} {
		_, err := h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{Filter: wrong})
		wantCode(t, err, codes.InvalidArgument)
	}
}

func TestDryRunCountsAndChangesNothing(t *testing.T) {
	t.Parallel()
	log := &logged{}
	h := open(t, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	h.fill(12_500, 10)
	r := &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{
			State:         msghandlerv1.State_STATE_DEAD,
			ErrorContains: "No Exchange",
		}},
		Limit:  10_000,
		DryRun: true,
	}
	for _, want := range []int64{1000, 250} {
		answer, err := h.operators.DiscardMessages(t.Context(), r)
		if err != nil || answer.GetChanged() != want {
			t.Fatalf("got %v, %v, want %d", answer, err, want)
		}
		r.PageToken = answer.GetNextPageToken()
	}
	if r.GetPageToken() != "" {
		t.Error("there is more when all was looked at")
	}
	if n := h.store.len(); n != 12_500 || log.String() != "" || len(h.woken) > 0 {
		t.Errorf("%d are left, %v were woken, and the log says %s", n, h.woken, log)
	}

	r.DryRun = false
	answer, err := h.operators.DiscardMessages(t.Context(), r)
	if err != nil || answer.GetChanged() != 1000 || answer.GetNextPageToken() == "" {
		t.Fatalf("got %v, %v", answer, err)
	}
	for _, record := range h.store.records {
		if record.LastError == "nack" {
			return
		}
	}
	t.Error("a message that does not match was discarded")
}

func TestDryRunOfNamesPredictsEach(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "dead", halfmsg.Dead)
	h.store.put("orders", "sendable", halfmsg.Sendable)
	var names []*adminv1.MessageName
	for _, id := range []string{"dead", "sendable", "none"} {
		names = append(names, &adminv1.MessageName{Producer: "orders", Id: id})
	}
	retried, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: names},
		DryRun:    true,
	})
	if err != nil || retried.GetChanged() != 2 ||
		retried.GetOutcomes()[0].GetState() != msghandlerv1.State_STATE_SENDABLE {
		t.Errorf("got %v, %v", retried, err)
	}
	discarded, err := h.operators.DiscardMessages(
		t.Context(),
		&adminv1.DiscardMessagesRequest{Selection: &adminv1.MessageSelection{Names: names}, DryRun: true},
	)
	if err != nil || discarded.GetChanged() != 1 ||
		codes.Code(discarded.GetOutcomes()[1].GetCode()) != codes.FailedPrecondition ||
		codes.Code(discarded.GetOutcomes()[2].GetCode()) != codes.NotFound {
		t.Errorf("got %v, %v", discarded, err)
	}
	if h.store.get("orders", "dead").State != halfmsg.Dead || len(h.woken) > 0 {
		t.Error("a dry run has changed a message")
	}
	_, err = h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: names, Filter: &adminv1.MessageFilter{ErrorContains: "x"}},
	})
	wantCode(t, err, codes.InvalidArgument)
}

func TestADiscardSparesMovedMessages(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "moved", halfmsg.Pending)
	h.store.put("orders", "lost", halfmsg.Abandoned)
	r := &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{
			{Producer: "orders", Id: "moved"}, {Producer: "orders", Id: "lost"},
		}},
		ExpectedState: msghandlerv1.State_STATE_ABANDONED,
	}
	for _, r.DryRun = range []bool{true, false} {
		answer, err := h.operators.DiscardMessages(t.Context(), r)
		if err != nil || answer.GetChanged() != 1 ||
			codes.Code(answer.GetOutcomes()[0].GetCode()) != codes.FailedPrecondition {
			t.Errorf("dry %t: got %v, %v", r.GetDryRun(), answer, err)
		}
	}
	if h.store.get("orders", "moved").State != halfmsg.Pending || h.store.len() != 1 {
		t.Error("a message that was submitted since was discarded")
	}
	r.ExpectedState = msghandlerv1.State_STATE_SENDABLE
	_, err := h.operators.DiscardMessages(t.Context(), r)
	wantCode(t, err, codes.InvalidArgument)
}

// Messages to an exchange of two brokers are told apart in each call. The broker of an ACKNOWLEDGED message is unknown.
func TestBrokerNarrowsEveryCall(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.fill(20, 1)
	h.store.mu.Lock()
	for name, record := range h.store.records {
		switch {
		case name.ID < "00005":
			record.Broker = "events"
		case name.ID < "00008":
			record.State = halfmsg.Acknowledged
		}
		h.store.records[name] = record
	}
	h.store.mu.Unlock()
	list := func(state msghandlerv1.State, broker string, want int) (next string) {
		t.Helper()
		page, err := h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
			Filter:   &adminv1.MessageFilter{State: state, Broker: broker, Exchange: "shop"},
			PageSize: 12,
		})
		if err != nil || len(page.GetRecords()) != want {
			t.Errorf("broker %q: listed %d, %v, want %d", broker, len(page.GetRecords()), err, want)
		}
		return page.GetNextPageToken()
	}
	dead := msghandlerv1.State_STATE_DEAD
	list(dead, "events", 5)
	list(dead, halfmsg.DefaultBroker, 12)
	list(dead, "other", 0)
	list(msghandlerv1.State_STATE_ACKNOWLEDGED, halfmsg.DefaultBroker, 0)
	next := list(dead, "", 12)
	_, err := h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
		Filter:    &adminv1.MessageFilter{State: dead, Exchange: "shop", Broker: "events"},
		PageToken: next,
	})
	wantCode(t, err, codes.InvalidArgument) // a token of another listing
	_, err = h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
		Filter: &adminv1.MessageFilter{State: dead, Broker: strings.Repeat("é", 128)},
	})
	wantCode(t, err, codes.InvalidArgument)
	_, err = h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{
			Names:  []*adminv1.MessageName{{Producer: "orders", Id: "00001"}},
			Filter: &adminv1.MessageFilter{Broker: "events"},
		},
	})
	wantCode(t, err, codes.InvalidArgument) // names and a filter
	discarded, err := h.operators.DiscardMessages(t.Context(), &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, Broker: "events"}},
	})
	if err != nil || discarded.GetChanged() != 5 {
		t.Errorf("discarded %v, %v", discarded, err)
	}
	retried, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, Broker: halfmsg.DefaultBroker}},
		DryRun:    true,
	})
	if err != nil || retried.GetChanged() != 12 {
		t.Errorf("retried %v, %v", retried, err)
	}
}
