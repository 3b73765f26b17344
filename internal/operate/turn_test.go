package operate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// slow is a broker whose looks and changes last until their time is over.
type slow struct{ DeadLetters }

func (slow) Visit(ctx context.Context, visit func(*consumer.Letter) bool) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s slow) ReplaySelected(ctx context.Context, of consumer.Selection) (int, error) {
	of.Match(&consumer.Letter{})
	return 0, s.Visit(ctx, nil)
}

// callAs makes a call of a person with a role: a look, or a change.
func callAs(ctx context.Context, desk *Desk, role access.Role, change bool) error {
	ctx = access.With(ctx, access.Identity{Role: role})
	if change {
		_, err := desk.Replay(ctx, &adminv1.ReplayDeadLettersRequest{Queue: "dead", Selection: everyLetter()},
			func(string, string, string) {})
		return err
	}
	_, err := desk.Count(ctx, &adminv1.CountDeadLettersRequest{Queue: "dead", Selection: everyLetter()})
	return err
}

// Looks of viewers, one after another, must not hold up the count and the replay of an operator.
func TestViewersHoldNoTurnOfOperators(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		first, second access.Role
		firstChanges  bool
		change        bool
		yields        bool
	}{
		"a viewer's look, an operator's look":      {access.Viewer, access.Operator, false, false, true},
		"a reader's look, a replay":                {access.Reader, access.Operator, false, true, true},
		"an admin's look, a replay":                {access.Admin, access.Operator, false, true, true},
		"an operator's look, a viewer's look":      {access.Operator, access.Viewer, false, false, false},
		"a viewer's look, another viewer's look":   {access.Viewer, access.Viewer, false, false, false},
		"a replay, an admin's look":                {access.Operator, access.Admin, true, false, false},
		"a replay of an operator, one of an admin": {access.Operator, access.Admin, true, true, false},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				desk := &Desk{queues: []*queue{newQueue(Source{Name: "dead"}, slow{}, shared)}}
				began, first := time.Now(), make(chan error, 3)
				for range 3 { // one has the turn, and two wait
					go func() { first <- callAs(t.Context(), desk, tc.first, tc.firstChanges) }()
				}
				synctest.Wait()
				second := callAs(t.Context(), desk, tc.second, tc.change)
				took := time.Since(began)
				if busy := errors.Is(second, halfmsg.ErrDeadLettersBusy); busy == tc.yields || busy && took != turnTime ||
					tc.yields && took != shared.walk {
					t.Errorf("the second call ended after %s with %v", took, second)
				}
				for range 3 {
					if err := <-first; tc.yields && !errors.Is(err, halfmsg.ErrDeadLettersBusy) {
						t.Errorf("a call that must yield: %v", err)
					}
				}
			})
		})
	}
}
