package rabbitmqoutbox

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// errUnanswered: the broker has a message, and has not answered in time.
var errUnanswered = errors.New("no answer of the broker")

// probePauses are the pauses between the probes of a stalled route: a probe holds its whole batch until the batch's
// time is over, which is 20 s as a rule.
var probePauses = backoff.Exponential(30*time.Second, 2*time.Minute)

// besideProbe is when messages are offered again that were claimed together with the probe of their route.
const besideProbe = 5 * time.Second

// routed is the part of a message that the table of routes reads. Without headers, since each probe costs a batch: all
// queues of a headers exchange stall together.
func routed(q *sql.Queued) publish.Message {
	return publish.Message{ID: q.Message.ID, Exchange: q.Message.Exchange, RoutingKey: q.Message.RoutingKey}
}

// hold splits messages into the places of messages to send and the results of messages on stalled routes.
func (s *Sender) hold(messages []sql.Queued) (places []int, results []outbox.Result) {
	results = make([]outbox.Result, len(messages))
	for i := range messages {
		m := routed(&messages[i])
		decision := s.routes.DecideShared(&m)
		if decision.State == publish.Stalled {
			results[i] = outbox.Result{Fate: outbox.Early, In: cmp.Or(decision.RetryIn, besideProbe), Err: decision.Err}
			continue
		}
		places = append(places, i)
	}
	return places, results
}

// learn records the answers to a batch. A message without an answer in time stalls its route if the broker answered
// other messages of the batch; the probe of a stalled route may be alone in its batch.
func (s *Sender) learn(ctx context.Context, messages []sql.Queued, results []outbox.Result) {
	othersSent := false
	for i := range results {
		othersSent = othersSent || results[i].Fate == outbox.Sent
	}
	timeOver := errors.Is(ctx.Err(), context.DeadlineExceeded)
	for i := range messages {
		m := routed(&messages[i])
		unanswered := timeOver && errors.Is(results[i].Err, errUnanswered)
		if unanswered && (othersSent || s.routes.IsStalled(&m)) {
			s.routes.Unanswered(&m)
		}
		s.routes.Release(&m)
	}
	for i := range messages { // after the loop above: a route with one answer is slow, and does not stall
		refused := results[i].Fate == outbox.Refused && unsendable(messages[i]) == nil // by the broker
		if results[i].Fate == outbox.Sent || refused {
			m := routed(&messages[i])
			s.routes.Answered(&m)
		}
	}
}
