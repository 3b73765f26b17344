package server_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// calls is what the store is asked by a call: how many items each question has.
func (h *house) calls(t *testing.T, call func() error) (sizes []int) {
	t.Helper()
	h.store.mu.Lock()
	h.store.batches = nil
	h.store.mu.Unlock()
	must.Succeed(t, call())
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	return h.store.batches
}

// codesOf counts answers by their codes.
func codesOf(outcomes []*msghandlerv1.Outcome) map[codes.Code]int {
	counts := map[codes.Code]int{}
	for _, o := range outcomes {
		counts[codes.Code(o.GetCode())]++
	}
	return counts
}

// An id that fills a batch costs the store two calls and not a thousand, and each of its items has the answer that a
// call of its own would have got, in that order.
func TestAnIDMayFillABatch(t *testing.T) {
	t.Parallel()
	h := open(t)
	send := &msghandlerv1.SendHalfMessagesRequest{Producer: "orders", CallbackTarget: "orders:9000"}
	names := make([]*adminv1.MessageName, 0, 1000)
	for i := range 1000 {
		m := good("1").GetMessage()
		if i%2 > 0 {
			m.Body = []byte("other content")
		}
		send.Messages = append(send.Messages, m)
		names = append(names, &adminv1.MessageName{Producer: "orders", Id: "1"})
	}
	send.Messages[7] = good("2").GetMessage()

	var outcomes []*msghandlerv1.Outcome
	sizes := h.calls(t, func() error {
		answer, err := h.producers.SendHalfMessages(t.Context(), send)
		outcomes = answer.GetOutcomes()
		return err
	})
	if !slices.Equal(sizes, []int{2, 998}) {
		t.Errorf("the store was asked %d times, want twice: about 2 and about 998", len(sizes))
	}
	for i, o := range outcomes {
		want := codes.OK
		if i%2 > 0 && i != 7 {
			want = codes.AlreadyExists
		}
		if codes.Code(o.GetCode()) != want || o.GetState() != msghandlerv1.State_STATE_PENDING {
			t.Fatalf("item %d: %v, want %v", i, o, want)
		}
	}
	if body := h.store.get("orders", "1").Body; string(body) != "{}" {
		t.Errorf("%s is stored, which was not the first", body)
	}

	h.store.put("orders", "1", halfmsg.Dead)
	sizes = h.calls(t, func() error {
		answer, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: names},
		})
		if counts := codesOf(answer.GetOutcomes()); err == nil && counts[codes.OK] != 1000 {
			t.Errorf("retried: %v", counts)
		}
		return err
	})
	if len(sizes) != 2 {
		t.Errorf("a retry asked the store %d times", len(sizes))
	}
	h.store.put("orders", "1", halfmsg.Dead)
	sizes = h.calls(t, func() error {
		answer, err := h.operators.DiscardMessages(t.Context(), &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: names},
		})
		if counts := codesOf(answer.GetOutcomes()); err == nil && (counts[codes.OK] != 1 || counts[codes.NotFound] != 999) {
			t.Errorf("discarded: %v", counts)
		}
		return err
	})
	if len(sizes) != 2 {
		t.Errorf("a discard asked the store %d times", len(sizes))
	}
}
