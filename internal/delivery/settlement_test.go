package delivery_test

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// doubtful is a store that does not know at its first call whether it has stored the outcomes.
type doubtful struct{ calls int }

func (s *doubtful) Settle(_ context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	s.calls++
	results := make([]halfmsg.Result, len(settlements))
	for i := range results {
		if results[i].State = halfmsg.Sendable; s.calls == 1 {
			results[i] = halfmsg.Result{Err: fmt.Errorf("read: %w", halfmsg.ErrUncertain)}
		}
	}
	return results
}

func TestUncertainOutcomesAreStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notes
		store := &doubtful{}
		groups := settle(t.Context(), store, &n, leased("1", "2"))
		if !slices.Equal(groups, []string{"1 true 2 true"}) || store.calls != 2 {
			t.Errorf("outcomes %q after %d calls", groups, store.calls)
		}
	})
}

// kept is a store that keeps what it is told.
type kept struct{ all []halfmsg.Settlement }

func (k *kept) Settle(_ context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	k.all = append(k.all, settlements...)
	return make([]halfmsg.Result, len(settlements))
}

// Without a field the store would settle another lease, lose the digest of a receipt, or make a message due too early.
func TestSettlementHoldsTheWholeOutcome(t *testing.T) {
	held := leased("1")[0]
	held.Token, held.Fingerprint, held.Backlog, held.Prompt = "token", "digest", true, true
	held.OrderingKey = "customer-7"
	var store kept
	settler := delivery.Settler{
		Store: &store, Logger: slog.New(slog.DiscardHandler),
		Failures: loglimit.NewGatherer(slog.New(slog.DiscardHandler)),
	}
	settler.Settle(t.Context(), []delivery.Outcome{{
		Leased: held, Event: halfmsg.EventRefused, After: time.Second, Hold: time.Minute, Cause: "no route",
	}}, func([]delivery.Outcome, []halfmsg.Result) {})
	want := []halfmsg.Settlement{{
		Name: held.Name, OrderingKey: "customer-7", Token: "token", Fingerprint: "digest", Event: halfmsg.EventRefused,
		After: time.Second, Hold: time.Minute, Cause: "no route", Backlog: true, Prompt: true,
	}}
	if !reflect.DeepEqual(store.all, want) {
		t.Errorf("the store got %+v", store.all)
	}
	for i, of := 0, reflect.ValueOf(want[0]); i < of.NumField(); i++ {
		if of.Field(i).IsZero() {
			t.Errorf("the test sets no %s", of.Type().Field(i).Name)
		}
	}
}
