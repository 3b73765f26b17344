package letters

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/console/pages"
)

// look bounds a look at the letters of a queue.
type look struct {
	looked int
	ends   time.Time
}

func newLook() *look { return &look{ends: time.Now().Add(lookTime)} }

// next counts a letter, and says why to stop before it; empty: go on.
func (l *look) next() string {
	switch {
	case l.looked >= maxLooked:
		return fmt.Sprintf("The console looks at the oldest %d letters of a queue. msghandler dlq reaches the others.",
			maxLooked)
	case time.Now().After(l.ends):
		return fmt.Sprintf("The look ended after %s and %d letters.", lookTime, l.looked)
	}
	l.looked++
	return ""
}

// List implements pages.Letters.
func (d *Desk) List(ctx context.Context, query pages.LetterQuery) (page pages.LetterPage, err error) {
	q, ctx, done, err := d.take(ctx, query.Queue)
	if err != nil {
		return page, err
	}
	defer done()
	filter, now, look := Filter(query.LetterFilter), time.Now(), newLook()
	var oldest time.Time
	err = q.dead.Visit(ctx, func(l *consumer.Letter) bool {
		oldest = earlier(oldest, l.Since())
		if len(page.Letters) == pageSize {
			page.Next = look.looked
			return false
		}
		if page.Note = look.next(); page.Note != "" {
			if look.looked < maxLooked && look.looked > query.After {
				page.Next = look.looked
			}
			return false
		}
		if look.looked > query.After && filter.Match(l, now) {
			page.Letters = append(page.Letters, shown(l))
		}
		return true
	})
	if err != nil {
		return pages.LetterPage{}, q.unreachable(err)
	}
	q.setOldest(oldest)
	return page, nil
}

// shown is a letter as the console shows it.
func shown(l *consumer.Letter) pages.Letter {
	return pages.Letter{
		Producer: l.Producer, ID: l.ID, Consumer: l.Queue, Exchange: l.Exchange, RoutingKey: l.RoutingKey,
		Reason: l.Reason, FirstCause: l.FirstCause, Retries: l.Retries, Attempt: l.Attempt, Since: l.Since(),
		ContentType: l.ContentType, Headers: l.Headers, Body: l.Body,
	}
}

// Get implements pages.Letters.
func (d *Desk) Get(ctx context.Context, name, letter string) (pages.Letter, error) {
	q, ctx, done, err := d.take(ctx, name)
	if err != nil {
		return pages.Letter{}, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	found, err := q.dead.ListSelected(ctx, consumer.Selection{
		Limit: 1, Match: q.matchBounded(Filter{Names: []string{letter}}, cancel),
	})
	switch {
	case len(found) > 0:
		return shown(&found[0]), nil
	case err == nil:
		return pages.Letter{}, refused(http.StatusNotFound, "The queue %s has no letter %s. An operator replayed or "+
			"discarded the letter, or another client holds it at this moment.", q.Name, letter)
	case errors.Is(err, context.Canceled):
		return pages.Letter{}, refused(http.StatusNotFound, "The oldest %d letters of %s have none named %s: the console "+
			"looks no further. Use msghandler dlq show %s --queue %s.", maxLooked, q.Name, letter, letter, q.Queue)
	}
	return pages.Letter{}, q.unreachable(err)
}

// CountLetters counts the letters of a change. Before the discard of a whole queue its length is asked, and no letter
// taken; before a replay the letters say where they would go.
func (d *Desk) CountLetters(ctx context.Context, c pages.LetterChange) (tally pages.LetterTally, err error) {
	q, ctx, done, err := d.take(ctx, c.Queue)
	if err != nil {
		return tally, err
	}
	defer done()
	filter, now, look, to := Filter(c.LetterFilter), time.Now(), newLook(), destinations{}
	if filter.All() && c.Discard {
		tally.Count, err = q.dead.Count(ctx)
	} else {
		err = q.dead.Visit(ctx, func(l *consumer.Letter) bool {
			if look.next() != "" {
				tally.AtLeast = true
				return false
			}
			if filter.Match(l, now) {
				tally.Count++
				to.add(l, q.MayPublish.Check(l))
			}
			return true
		})
	}
	if err != nil {
		return pages.LetterTally{}, q.unreachable(err)
	}
	if !c.Discard {
		tally.Destinations = to.all()
	}
	return tally, nil
}

// Changed are the letters that a change has changed.
type Changed struct {
	Names []string
	// Destinations are where a replay has published them, with their numbers.
	Destinations []pages.LetterDestination
}

// Change changes letters, and returns the changed letters with the result.
func (d *Desk) Change(
	ctx context.Context, c pages.LetterChange,
) (changed Changed, result pages.LettersChanged, err error) {
	q, ctx, done, err := d.take(ctx, c.Queue)
	if err != nil {
		return changed, result, err
	}
	defer done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	change := q.dead.ReplaySelected
	if c.Discard {
		change = q.dead.DiscardSelected
	}
	limit, to := min(c.Limit, maxChanged), destinations{}
	_, err = change(ctx, consumer.Selection{
		Limit: limit,
		Match: q.matchBounded(Filter(c.LetterFilter), cancel),
		Changed: func(l *consumer.Letter) {
			changed.Names = append(changed.Names, l.Name())
			to.add(l, nil)
		},
		MayReplay: q.MayPublish.Check,
	})
	if !c.Discard {
		changed.Destinations = to.all()
	}
	q.setOldest(time.Time{}) // the oldest may be gone
	stopped := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	result.Done = len(changed.Names)
	result.More = result.Done < c.Limit && (limit < c.Limit || stopped)
	if err != nil && !stopped {
		result.Problem = problem(err)
	}
	return changed, result, nil
}

// matchBounded matches letters, and stops after maxLooked letters that do not match and are held until the end. A topic
// of Kafka is read whole, and bounded before.
func (q *queue) matchBounded(filter Filter, stop func()) func(*consumer.Letter) bool {
	now, held := time.Now(), 0
	return func(l *consumer.Letter) bool {
		if filter.Match(l, now) {
			return true
		}
		if held++; held >= maxLooked && !q.state.AtMost {
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

// problem names the first letters that stay, and counts the others: each letter has a line.
func problem(err error) string {
	lines := strings.Split(err.Error(), "\n")
	text := strings.Join(lines[:min(len(lines), maxProblems)], "\n")
	if len(text) > maxProblem {
		text = text[:maxProblem] + "…"
	}
	if more := len(lines) - maxProblems; more > 0 {
		text += fmt.Sprintf("\nand %d more", more)
	}
	return text
}
