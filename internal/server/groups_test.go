package server_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// broken puts dead messages into the store whose errors differ in ids and numbers.
func (h *house) broken(n int, exchange, fault string) {
	for i := range n {
		name := halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("%s-%05d", exchange, i)}
		h.store.records[name] = halfmsg.Record{
			Message: halfmsg.Message{Name: name, Exchange: exchange, Headers: map[string]string{"tenant": "nordic"}},
			State:   halfmsg.Dead, CreatedAt: time.Unix(1e9+int64(i), 0), LastError: fmt.Sprintf(fault, name.ID, i),
		}
	}
}

func TestGroupsHaveACauseInCommon(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.broken(30, "shop", "no queue for %s after %d tries")
	h.broken(3, "money", "no queue for %s after %d tries")
	request := &adminv1.GroupMessagesRequest{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD}}
	answer, err := h.operators.GroupMessages(t.Context(), request)
	if err != nil || len(answer.GetGroups()) != 2 || answer.GetSampleSize() != 33 || answer.GetTotalSize() != 99 {
		t.Fatalf("got %v, %v", answer, err)
	}
	g := answer.GetGroups()[0]
	if g.GetExchange() != "shop" || g.GetCause() != "no queue for shop-00000 after 0 tries" || g.GetCount() != 90 ||
		g.GetExampleId() != "shop-00000" || g.GetExampleError() != "no queue for shop-00000 after 0 tries" ||
		g.GetOldestCreateTime().AsTime().Unix() != 1e9 || g.GetNewestCreateTime().AsTime().Unix() != 1e9+29 {
		t.Errorf("the largest group is %v", g)
	}
	// A list with the group's cause is the group.
	page, err := h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
		Filter: &adminv1.MessageFilter{
			State: request.GetFilter().GetState(), Producer: g.GetProducer(),
			Exchange: g.GetExchange(), Cause: g.GetCause(),
		},
	})
	if err != nil || len(page.GetRecords()) != 30 {
		t.Errorf("the list of the group has %d messages: %v", len(page.GetRecords()), err)
	}
	request.Filter.Cause, request.Filter.Producer = "another cause", "orders"
	if answer, err = h.operators.GroupMessages(t.Context(), request); err != nil || len(answer.GetGroups()) != 0 {
		t.Errorf("got %v, %v", answer, err)
	}
	state := request.GetFilter().GetState()
	for _, wrong := range []*adminv1.MessageFilter{
		nil, {}, {State: state, Header: "tenant"}, {State: state, Cause: strings.Repeat("é", 1001)},
	} {
		_, err := h.operators.GroupMessages(t.Context(), &adminv1.GroupMessagesRequest{Filter: wrong})
		wantCode(t, err, codes.InvalidArgument)
	}
	_, err = h.operators.GroupMessages(t.Context(), newer(&adminv1.GroupMessagesRequest{
		Filter: &adminv1.MessageFilter{State: state},
	}))
	wantCode(t, err, codes.Unimplemented)
}

// A page token belongs to its listing, and a change keeps to its filter.
func TestNewFiltersSelectMessages(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.broken(30, "shop", "no queue for %s after %d tries")
	dead := msghandlerv1.State_STATE_DEAD
	page, err := h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: dead, IdPrefix: "shop-0001", Header: "tenant=nordic"},
		PageSize: 5,
	})
	if err != nil || len(page.GetRecords()) != 5 || page.GetRecords()[0].GetMessage().GetId() != "shop-00010" {
		t.Fatalf("got %v, %v", page, err)
	}
	_, err = h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
		Filter:    &adminv1.MessageFilter{State: dead, IdPrefix: "shop-0002", Header: "tenant=nordic"},
		PageToken: page.GetNextPageToken(),
	})
	wantCode(t, err, codes.InvalidArgument)
	discarded, err := h.operators.DiscardMessages(t.Context(), &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, IdPrefix: "shop-0001"}},
		Reason:    "test",
	})
	if err != nil || discarded.GetChanged() != 10 || h.store.len() != 20 {
		t.Errorf("got %v, %v; %d are left", discarded, err, h.store.len())
	}
	retried, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: dead, RoutingKey: "none"}},
		DryRun:    true,
	})
	if err != nil || retried.GetChanged() != 0 {
		t.Errorf("got %v, %v", retried, err)
	}
}

// Where headers are hidden no filter tells what they hold.
func TestHiddenHeadersCannotBeSearched(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.HideBodies = true })
	h.broken(1, "shop", "%s %d")
	for _, header := range []string{"tenant=nordic", "tenant=other"} {
		_, err := h.operators.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD, Header: header},
		})
		wantCode(t, err, codes.InvalidArgument)
	}
}

func TestIDIsFoundAtEachProducer(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "1001", halfmsg.Dead)
	h.store.put("stock", "1001", halfmsg.Pending)
	h.store.put("stock", "1002", halfmsg.Pending)
	found, err := h.operators.FindMessages(t.Context(), &adminv1.FindMessagesRequest{Id: "1001"})
	if err != nil || len(found.GetRecords()) != 2 {
		t.Errorf("got %v, %v", found, err)
	}
	for _, wrong := range []*adminv1.FindMessagesRequest{
		{}, {Id: "orders/1001"}, {Id: "1", Producers: make([]string, 1001)}, {Id: "1", Producers: []string{"a:b"}},
	} {
		_, err := h.operators.FindMessages(t.Context(), wrong)
		wantCode(t, err, codes.InvalidArgument)
	}
}
