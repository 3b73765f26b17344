package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// hanging is a broker that shows some letters and takes no copy.
type hanging struct {
	DeadLetters
	letters int
	// replay is what a replay of the letters ends with.
	replay func(ctx context.Context) error
}

func (h hanging) ReplaySelected(ctx context.Context, s consumer.Selection) (int, error) {
	for range h.letters {
		s.Match(&consumer.Letter{})
	}
	return 0, h.replay(ctx)
}

// A broker that does not answer is no reason to say that more letters match, and that nothing is wrong.
func TestBrokerWithoutAnswerIsTold(t *testing.T) {
	t.Parallel()
	late := context.DeadlineExceeded
	unanswered := fmt.Errorf("replay orders/1: no answer of the broker: %w", late)
	ended := func(errs ...error) func(context.Context) error {
		return func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(append(errs, fmt.Errorf("read the stream: %w", ctx.Err()), ctx.Err())...)
		}
	}
	at := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	for what, tc := range map[string]struct {
		letters int
		replay  func(context.Context) error
		walk    time.Duration
		kind    error
		more    bool
		problem string
	}{
		"no connection":       {0, at(fmt.Errorf("dial: %w", late)), time.Hour, halfmsg.ErrDeadLettersUnreadable, false, ""},
		"no letter in time":   {0, ended(), time.Millisecond, halfmsg.ErrDeadLettersUnreadable, false, ""},
		"no confirmation":     {1, at(unanswered), time.Hour, nil, false, unanswered.Error()},
		"none, and time over": {1, ended(unanswered), time.Millisecond, nil, true, unanswered.Error()},
		"time over":           {1, ended(), time.Millisecond, nil, true, ""},
	} {
		q := newQueue(Source{Name: "dead"}, hanging{letters: tc.letters, replay: tc.replay}, shared)
		q.bounds.walk = tc.walk
		desk := &Desk{queues: []*queue{q}}
		answer, err := desk.Replay(t.Context(), &adminv1.ReplayDeadLettersRequest{
			Queue: "dead", Selection: everyLetter(),
		}, func(string, string, string) {})
		if !errors.Is(err, tc.kind) || answer.GetMore() != tc.more || answer.GetProblem() != tc.problem {
			t.Errorf("%s: %v, %v", what, answer, err)
		}
		if tc.kind != nil && err != nil && !strings.Contains(err.Error(), late.Error()) {
			t.Errorf("%s: %v names no cause", what, err)
		}
	}
}
