// Package direct sends a producer's local message table straight to a broker, through the publisher of the broker: the
// plain outbox, without a coordinator. Packages rabbitmqoutbox, kafkaoutbox and natsoutbox are direct with the
// publisher of their library.
package direct

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

const (
	// readyTimeout is how long a batch waits until the broker takes messages.
	readyTimeout = 5 * time.Second
	// ioTimeout is the interval of heartbeats, and bounds every write: a hanging write would hold the relay.
	ioTimeout = 5 * time.Second
	// closeTimeout is how long Close waits for answers that no Send waits for any more.
	closeTimeout = 2 * time.Second
	// stalledPause is when messages are offered again whose exchange, queue or topic does not confirm.
	stalledPause = 15 * time.Second
	// lastAnswers is how long a batch waits after the end of its time. The publisher hands over by then what the broker
	// has answered: otherwise an acknowledged message would be published again.
	lastAnswers = publish.HandOverEvery + 50*time.Millisecond
)

// probePauses are the pauses between the probes of a stalled route: a probe holds its whole batch until the batch's
// time is over, which is 20 s as a rule.
var probePauses = backoff.Exponential(30*time.Second, 2*time.Minute)

// Config says which broker. URL and Producer must be given.
type Config struct {
	// URL is the address of the broker.
	URL string
	// TLS is used where the URL asks for TLS and names no files; nil is Go's default.
	TLS *tls.Config
	// Producer is the producer's name, which messages carry.
	Producer string
}

// Sender is an outbox.Sender. A sender belongs to one relay.
type Sender struct {
	producer  string
	publisher publish.Client
	// calls has the calls of Publish, which may outlive a Send.
	calls lifecycle.Group
}

// New returns a sender that publishes with the publisher that open returns. It connects in the background. answers
// bounds the wait for the broker's answers; the time of a batch bounds the wait, too.
func New[P publish.Client](
	config Config, answers time.Duration, open func(publish.Config) (P, error),
) (*Sender, error) {
	if config.Producer == "" {
		return nil, errors.New("outbox: Config.Producer is missing; give the producer's name")
	}
	publisher, err := open(publish.Config{
		URL: config.URL, TLS: config.TLS, Name: "outbox " + config.Producer, ConfirmTimeout: answers,
		Heartbeat: ioTimeout, WriteTimeout: ioTimeout, ProbePauses: probePauses,
		Logger: slog.New(slog.DiscardHandler), // the relay logs what became of messages
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: Config.URL: %w", err)
	}
	return &Sender{producer: config.Producer, publisher: publisher}, nil
}

// Close closes the connection. Call it after the relay's Run has returned.
func (s *Sender) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = s.publisher.Close(ctx) // the relay knows the results, or has given up on them
	_ = s.calls.Wait(ctx)
}

// Send implements outbox.Sender. While a route stalls, such as a queue that does not confirm, its messages are Early,
// except for one probe after each pause.
func (s *Sender) Send(ctx context.Context, messages []sql.Queued) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	var places []int
	for i := range messages {
		if held := hold(&messages[i]); held != nil {
			results[i] = *held
			continue
		}
		places = append(places, i)
	}
	if len(places) == 0 {
		return results
	}
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.publisher.Await(ready); err != nil {
		for _, i := range places {
			results[i] = resultOf(&messages[i], publish.Unsent.Because(err))
		}
		return results
	}
	batch := make([]publish.Message, len(places))
	for n, i := range places {
		batch[n] = s.message(&messages[i])
	}
	for n, result := range s.publish(ctx, batch) {
		results[places[n]] = resultOf(&messages[places[n]], result)
	}
	return results
}

// hold is the result of a message that is not to be published now: no broker takes it from here, or its delay is not
// over. Without a coordinator the table keeps the delay.
func hold(q *sql.Queued) *outbox.Result {
	if err := cmp.Or(q.Unreadable, outbox.ForCoordinator(&q.Message)); err != nil {
		return &outbox.Result{Fate: outbox.Refused, Err: publishError(q, err)}
	}
	if q.Age < q.Message.Delay {
		return &outbox.Result{Fate: outbox.Early, In: q.Message.Delay - q.Age}
	}
	return nil
}

func (s *Sender) message(q *sql.Queued) publish.Message {
	m := &q.Message
	return publish.Message{
		Name: publish.Name{Producer: s.producer, ID: m.ID}, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		ContentType: m.ContentType, Headers: m.Headers, Body: m.Body, DueAt: q.DueAt(), Attempt: q.Claims,
	}
}

// errUnanswered is the cause of messages whose batch has ended before the broker's answer.
var errUnanswered = errors.New("no answer of the broker in time")

// publish publishes a batch and returns when each message has a result, or soon after the context ends. The publisher
// then still waits for the answers, from which it learns, and no result changes any more.
func (s *Sender) publish(ctx context.Context, batch []publish.Message) []publish.Result {
	var mu sync.Mutex
	results := make([]publish.Result, len(batch))
	for i := range results {
		results[i] = publish.Unsure.Because(errUnanswered)
	}
	done := make(chan *lifecycle.PanicError, 1)
	s.calls.Go(func() {
		done <- lifecycle.Recovered(func() {
			s.publisher.Publish(ctx, batch, func(places []int, some []publish.Result) {
				mu.Lock()
				defer mu.Unlock()
				for n, i := range places {
					results[i] = some[n]
				}
			})
		})
	})
	if failure := awaitEnd(ctx, done); failure != nil {
		panic(failure) // the relay refuses the messages
	}
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(results)
}

// awaitEnd waits for the end of a call of Publish, and lastAnswers at most after the end of the context.
func awaitEnd(ctx context.Context, done <-chan *lifecycle.PanicError) (failure *lifecycle.PanicError) {
	select {
	case failure = <-done:
		return failure
	case <-ctx.Done():
	}
	select {
	case failure = <-done:
		return failure
	case <-time.After(lastAnswers):
		return nil
	}
}

// resultOf is what the broker's answer means for the relay.
func resultOf(q *sql.Queued, r publish.Result) outbox.Result {
	err := publishError(q, r.Cause)
	switch {
	case r.Outcome == publish.Acked:
		return outbox.Result{Fate: outbox.Sent}
	case r.Outcome == publish.Refused:
		return outbox.Result{Fate: outbox.Refused, Err: err}
	case r.Outcome == publish.Unsent && errors.Is(r.Cause, publish.ErrStalled):
		return outbox.Result{Fate: outbox.Early, In: stalledPause, Err: err}
	case r.Outcome == publish.Unsent:
		return outbox.Result{Fate: outbox.Unreached, Err: err, Unsent: true}
	default: // a copy may be out
		return outbox.Result{Fate: outbox.Unreached, Err: err}
	}
}

func publishError(q *sql.Queued, cause error) error {
	return fmt.Errorf("publish %s: %w", q.Message.ID, cause)
}

var _ outbox.Sender = (*Sender)(nil)
