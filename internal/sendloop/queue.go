package sendloop

import (
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
)

const (
	// recent is how long somebody's message makes the backlog give way after it.
	recent = time.Second
	// patience is how long the backlog gives way at most: one that is not worked off by then is too large for that. There
	// is a lull when nothing of it comes for so long; what comes then is another backlog.
	patience, lull = 2 * time.Second, 250 * time.Millisecond
)

// queue is what waits for the broker: messages that somebody has just submitted, and the backlog. While there are both,
// the backlog is published in batches of a share, one at a time: the broker takes messages in the order in which they
// come, so whatever is on its way stands before the next that somebody waits for. One more may be settled meanwhile. A
// backlog that is alone, or has given way for long enough, fills whole batches. It is not safe for concurrent use.
type queue struct {
	fresh, backlog []delivery.Leased
	// share is how much of the backlog goes to the broker at a time while there is fresh traffic.
	share int
	// backlogs counts the batches of the backlog that are under way, unsent those that the broker has not answered yet.
	backlogs, unsent int
	// freshAt and backlogAt are when a message of each came last, backlogSince since when there was no lull in the
	// backlog.
	freshAt, backlogAt, backlogSince time.Time
	// freshLast says that the last batch was not of the backlog.
	freshLast bool
}

func (q *queue) add(held []delivery.Leased) {
	now := time.Now()
	for _, h := range held {
		if h.Backlog {
			q.backlog = append(q.backlog, h)
			if now.Sub(q.backlogAt) > lull {
				q.backlogSince = now
			}
			q.backlogAt = now
		} else {
			q.fresh = append(q.fresh, h)
			q.freshAt = now
		}
	}
}

// take takes the next batch of at most n, either fresh or of the backlog; none when what waits has to wait longer.
func (q *queue) take(n int) (batch []delivery.Leased) {
	if q.freshNext() {
		q.freshLast = true
		return cut(&q.fresh, n)
	}
	if q.givesWay() {
		n = min(n, q.share)
	}
	q.freshLast = false
	q.backlogs++
	q.unsent++
	return cut(&q.backlog, n)
}

// freshNext says whether the next batch is not of the backlog, as that has to wait, or it is the turn of the others.
func (q *queue) freshNext() bool {
	if len(q.backlog) == 0 || q.givesWay() && (q.unsent > 0 || q.backlogs > 1) {
		return true
	}
	return len(q.fresh) > 0 && !q.freshLast
}

func (q *queue) givesWay() bool {
	return time.Since(q.freshAt) < recent && time.Since(q.backlogSince) < patience
}

// sent says that the broker has answered a batch, of the backlog or not.
func (q *queue) sent(backlog bool) {
	if backlog {
		q.unsent--
	}
}

// done ends a batch.
func (q *queue) done(backlog bool) {
	if backlog {
		q.backlogs--
	}
}

// empty takes all that waits.
func (q *queue) empty() []delivery.Leased {
	return slices.Concat(cut(&q.fresh, len(q.fresh)), cut(&q.backlog, len(q.backlog)))
}

// cut takes the first n of those that wait.
func cut(waiting *[]delivery.Leased, n int) []delivery.Leased {
	n = min(n, len(*waiting))
	taken := slices.Clone((*waiting)[:n])
	clear((*waiting)[:n]) // or the bodies would stay in memory as long as somebody waits
	*waiting = (*waiting)[n:]
	return taken
}
