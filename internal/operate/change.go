package operate

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// defaultChange is how many letters change where the request does not say.
const defaultChange = 1000

// changeRequest is the request of a replay or of a discard.
type changeRequest interface {
	GetQueue() string
	GetSelection() *adminv1.DeadLetterSelection
	GetLimit() int32
}

// DeadLetterChanged is called with the name of a changed letter, and with where a replay publishes it.
type DeadLetterChanged = func(name, exchange, routingKey string)

// outcome is the result of a change.
type outcome struct {
	done    int64
	more    bool
	problem string
}

// Replay publishes letters again, and calls changed with each.
func (d *Desk) Replay(
	ctx context.Context, r *adminv1.ReplayDeadLettersRequest, changed DeadLetterChanged,
) (*adminv1.ReplayDeadLettersResponse, error) {
	to := destinations{}
	o, err := d.change(ctx, r, DeadLetters.ReplaySelected, func(l *consumer.Letter) {
		to.add(l, nil)
		changed(clean(l.Name()), clean(l.Exchange), clean(l.RoutingKey))
	})
	return &adminv1.ReplayDeadLettersResponse{
		Changed: o.done, More: o.more, Problem: o.problem, Destinations: to.all(),
	}, err
}

// Discard removes letters, and calls changed with each.
func (d *Desk) Discard(
	ctx context.Context, r *adminv1.DiscardDeadLettersRequest, changed DeadLetterChanged,
) (*adminv1.DiscardDeadLettersResponse, error) {
	o, err := d.change(ctx, r, DeadLetters.DiscardSelected, func(l *consumer.Letter) {
		changed(clean(l.Name()), clean(l.Exchange), clean(l.RoutingKey))
	})
	return &adminv1.DiscardDeadLettersResponse{Changed: o.done, More: o.more, Problem: o.problem}, err
}

// change changes letters, the oldest first. An error says that nothing was changed.
func (d *Desk) change(
	ctx context.Context, r changeRequest,
	do func(DeadLetters, context.Context, consumer.Selection) (int, error), changed func(*consumer.Letter),
) (o outcome, err error) {
	q, ctx, done, err := d.takeTurn(ctx, r.GetQueue(), changing)
	if err != nil {
		return o, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	match, seen := matcher(r.GetSelection().GetNames(), r.GetSelection().GetFilter()), false
	_, err = do(q.letters(), ctx, consumer.Selection{
		Limit: cmp.Or(int(r.GetLimit()), defaultChange),
		Match: q.matchBounded(func(l *consumer.Letter) bool { seen = true; return match(l) }, cancel),
		Changed: func(l *consumer.Letter) {
			o.done++
			changed(l)
		},
		MayReplay: q.MayPublish.check,
	})
	q.setOldest(time.Time{}) // the oldest may be gone
	switch {
	case err == nil:
		return o, nil
	case !seen:
		return o, q.unreachable(ctx, err)
	}
	o.more = ctx.Err() != nil
	o.problem = problem(err, ctx.Err())
	return o, nil
}

// matchBounded matches letters, and stops after so many letters that do not match and are held until the end. A topic
// of Kafka is read whole, and bounded before.
func (q *queue) matchBounded(match func(*consumer.Letter) bool, stop func()) func(*consumer.Letter) bool {
	held := 0
	return func(l *consumer.Letter) bool {
		if match(l) {
			return true
		}
		if held++; held >= q.bounds.looked && !q.state.GetCountAtMost() {
			stop()
		}
		return false
	}
}

// maxProblems is how many letters that stay are named, and maxProblem how many bytes are said about them.
const (
	maxProblems = 5
	maxProblem  = 4 << 10
)

// problem names the first letters that stay, and counts the others: each letter has a line. That the time of the call
// is over is no problem: more says so.
func problem(err, over error) string {
	lines := slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(line string) bool {
		return over != nil && strings.HasSuffix(line, over.Error()) && !ofLetter.MatchString(line)
	})
	text := strings.Join(lines[:min(len(lines), maxProblems)], "\n")
	if len(text) > maxProblem {
		text = text[:maxProblem] + "…"
	}
	if more := len(lines) - maxProblems; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return clean(text)
}

// ofLetter tells lines about a letter from those about the whole queue.
var ofLetter = regexp.MustCompile(`^(replay|discard) | is replayed, and stays `)
