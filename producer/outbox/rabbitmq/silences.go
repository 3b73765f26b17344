package rabbitmq

import (
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

var (
	// errUnanswered: the broker has taken a message, and has not said what became of it while there was time.
	errUnanswered = errors.New("no answer of the broker")
	// errSilent is why a message was not sent now.
	errSilent = errors.New("the queue does not confirm: other messages with this exchange and routing key had no answer of the " +
		"broker, and one at a time tries it")
)

// silentPause is for how long a route is left alone: a message that tries it holds its whole batch for as long as there is
// time, which is 20 s as a rule.
var silentPause = backoff.Exponential(30*time.Second, 2*time.Minute)

const (
	// tryPatience is when those are offered again that came together with the one that tries their route.
	tryPatience = 5 * time.Second
	// maxSilences is how many routes are remembered before they are all forgotten; each is found out again.
	maxSilences = 1000
)

// silences are the routes for which the broker has left messages without an answer, as for a quorum queue without a
// majority, though it answered for others at that time. Their messages are not sent but for one after each pause, or they
// would hold every batch. It is not safe for concurrent use.
type silences map[route]*silence

type route struct{ exchange, routingKey string }

func routeOf(q *sql.Queued) route { return route{q.Message.Exchange, q.Message.RoutingKey} }

type silence struct {
	// until is how long the route is left alone, tries how often it had no answer.
	until time.Time
	tries int
	// trying says that a message of this batch tries it.
	trying bool
}

// hold splits messages into the places of those that are sent and the results of the others.
func (s silences) hold(messages []sql.Queued) (places []int, results []outbox.Result) {
	results = make([]outbox.Result, len(messages))
	now := time.Now()
	for i := range messages {
		silent := s[routeOf(&messages[i])]
		switch {
		case silent == nil:
			places = append(places, i)
		case silent.trying:
			results[i] = outbox.Result{Fate: outbox.Early, In: tryPatience, Err: errSilent}
		case now.Before(silent.until):
			results[i] = outbox.Result{Fate: outbox.Early, In: silent.until.Sub(now), Err: errSilent}
		default:
			silent.trying = true
			places = append(places, i)
		}
	}
	return places, results
}

// learn takes what became of the messages of a batch that were sent.
func (s silences) learn(ctx context.Context, messages []sql.Queued, results []outbox.Result) {
	answered := false
	for i := range results {
		answered = answered || results[i].Fate == outbox.Sent
	}
	inTime := !errors.Is(ctx.Err(), context.DeadlineExceeded)
	noted := map[route]bool{}
	for i := range messages {
		r := routeOf(&messages[i])
		silent := s[r]
		if silent != nil {
			silent.trying = false
		}
		// One that is known to be silent needs nobody that bears witness: it may be alone in its batch.
		if inTime || noted[r] || !errors.Is(results[i].Err, errUnanswered) || (!answered && silent == nil) {
			continue
		}
		noted[r] = true
		s.note(r)
	}
	for i := range messages { // a route of which one message had an answer is slow, and not silent
		refused := results[i].Fate == outbox.Refused && unsendable(messages[i]) == nil // by the broker
		if results[i].Fate == outbox.Sent || refused {
			delete(s, routeOf(&messages[i]))
		}
	}
}

func (s silences) note(r route) {
	silent := s[r]
	if silent == nil {
		if len(s) >= maxSilences {
			clear(s)
		}
		silent = &silence{}
		s[r] = silent
	}
	silent.until = time.Now().Add(silentPause.Delay(silent.tries))
	silent.tries++
}
