package redis

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Callers must know whether a move may have been made: UNAVAILABLE means that it was not.
func TestUntakenMovesAreUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		m := moves{batch.New(batch.Config{Max: 1, Parallel: 1, Waiting: 1, Timeout: time.Hour},
			func(_ context.Context, calls []*call) []struct{} { <-gate; return make([]struct{}, len(calls)) })}
		ended, end := context.WithCancel(t.Context())
		end()
		if got := m.run(ended, []*call{{}})[0].err; !errors.Is(got, halfmsg.ErrUnavailable) {
			t.Errorf("before the call the context had ended: %v", got)
		}

		leaving, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- m.run(leaving, []*call{{}})[0].err }()
		synctest.Wait()
		go m.run(t.Context(), []*call{{}})
		synctest.Wait() // one call is in flight, one waits
		if got := m.run(t.Context(), []*call{{}})[0].err; !errors.Is(got, halfmsg.ErrUnavailable) {
			t.Errorf("too many calls wait: %v", got)
		}
		leave()
		if got := <-left; !errors.Is(got, halfmsg.ErrUncertain) {
			t.Errorf("the context ended during the call: %v", got)
		}
		close(gate)
	})
}

// The reply about a claim ends with the time, which is no message.
func TestOnlyClaimsAreCountedAsClaimed(t *testing.T) {
	t.Parallel()
	claim := make([]any, claimFields)
	vanished, now := []any{"orders", "1"}, int64(1)
	sc := &script{answers: answersOf["claim"]}
	for _, test := range []struct {
		reply []any
		want  int
	}{
		{[]any{claim, vanished, claim, now}, 2},
		{[]any{vanished, now}, 0},
		{[]any{now}, 0},
		{nil, 0},
	} {
		if got := sc.answered([]*call{{messages: 10, reply: test.reply}}); got != test.want {
			t.Errorf("%d claimed, want %d: %v", got, test.want, test.reply)
		}
	}
}
