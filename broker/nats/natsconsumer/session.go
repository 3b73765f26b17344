package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// session hands the messages of one connection to workers.
type session struct {
	run *run
	js  jetstream.JetStream
	// durable is the durable consumer.
	durable jetstream.Consumer
	// refusals ends the requests that the server forbids.
	refusals *natsconn.Refusals
	tasks    chan *task
	// places has an element for each further message that may be here: the channel of tasks is never full.
	places chan struct{}
	// waiting has an element for each message that waits here for another copy, and has freed its place.
	waiting chan struct{}
	// connected ends with the connection, and over when the pull has ended.
	connected, over context.Context
	endPull         context.CancelFunc
	// late has the messages that come to the channel of tasks later; ending is held to begin one, and to end the pull.
	late   lifecycle.Group
	ending sync.Mutex
	// created is when the durable consumer was made, and last its number of the last delivery to this session.
	created time.Time
	last    uint64
	// replaced, set before over ends: the durable consumer, or the stream, was deleted. A successor with its name would
	// take the sequence numbers of its messages for its own.
	replaced bool
}

// task is a message that was received. Its time to be acknowledged is renewed until end is called.
type task struct {
	jetstream.Msg
	meta *jetstream.MsgMetadata
	end  context.CancelFunc
	kept lifecycle.Group
	// free frees the place of the message.
	free func()
	// busy is how often the message was found busy here.
	busy int
}

// receive takes messages until the pull ends. Each pull asks for as many messages as there are free places: a message
// that waits on the server for its next delivery takes none.
func (s *session) receive(durable jetstream.Consumer) error {
	for {
		n := s.takePlaces()
		if n == 0 {
			return errEnded
		}
		err := s.refusals.Ask(s.connected, "$JS.API.CONSUMER.MSG.NEXT."+s.run.Stream+"."+s.run.Name,
			func(ctx context.Context) error { return s.pull(ctx, durable, n) })
		if err != nil {
			return err
		}
	}
}

// takePlaces waits until enough places are free for a pull, and takes all free ones; 0 when no more is to be pulled.
// Handlers have messages to go on with meanwhile.
func (s *session) takePlaces() (n int) {
	for least := max((s.run.Prefetch-s.run.Concurrency)/2, 1); ; n++ {
		if n >= least && len(s.places) == 0 {
			return n
		}
		select {
		case <-s.places:
		case <-s.run.stopping.Done():
			return 0
		case <-s.connected.Done():
			return 0
		}
	}
}

// pull receives n messages, until the context ends.
func (s *session) pull(ctx context.Context, durable jetstream.Consumer, n int) error {
	messages, err := durable.Messages(jetstream.PullMaxMessages(n), jetstream.StopAfter(n),
		jetstream.PullHeartbeat(ioTimeout))
	if err != nil {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(s.run.stopping, messages.Drain)() // what was received goes back
	defer context.AfterFunc(ctx, messages.Stop)()             // the pull does not see that the connection has ended
	for range n {
		m, err := messages.Next()
		if err != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if s.isOfSuccessor(durable, meta) {
			_ = m.Nak() // for the next session
			return jetstream.ErrConsumerDeleted
		}
		t := &task{Msg: m, meta: meta, free: func() { s.places <- struct{}{} }}
		var kept context.Context
		kept, t.end = context.WithCancel(context.Background())
		t.kept.Go(func() { s.keep(kept, m) })
		s.take(t)
	}
	return nil
}

// keep renews the time to acknowledge a message, until the context, the connection or the durable consumer ends.
func (s *session) keep(ctx context.Context, m jetstream.Msg) {
	tick := time.NewTicker(s.run.AckWait / 3)
	defer tick.Stop()
	over := s.over.Done()
	for {
		select {
		case <-over:
			if s.isReplaced() {
				return
			}
			over = nil
		case <-tick.C:
			_ = m.InProgress() // on a failure the message is redelivered, and the copy is found by its id
		case <-s.connected.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

// work handles tasks in their order. Tasks that are left when the run stops or the pull ends go back.
func (s *session) work() {
	for t := range s.tasks {
		select {
		case <-s.connected.Done():
			s.abandon(t)
		case <-s.over.Done():
			s.giveBack(t)
		case <-s.run.stopping.Done():
			s.giveBack(t)
		default:
			s.handle(t)
		}
	}
}

// abandon drops a message of a connection that has ended. The server delivers the message again.
func (s *session) abandon(t *task) {
	s.run.failures.exclude(t.meta.Sequence.Stream)
	t.stop()
}

// giveBack has a message delivered again at once.
func (s *session) giveBack(t *task) {
	t.stop()
	if s.isReplaced() {
		return
	}
	s.run.failures.exclude(t.meta.Sequence.Stream)
	s.takeBack(t)
	_ = t.Nak() // a lost connection gives the message back, too
}

// stop ends the renewals, so that none follows the acknowledgement, and frees the place of the message.
func (t *task) stop() {
	t.end()
	_ = t.kept.Wait(context.Background())
	t.free()
}

// handle handles a message, again and again while its handler cannot work for now. Each handling is observed: a message
// that waits here is neither slow nor unseen.
func (s *session) handle(t *task) {
	r := s.run
	m := newMessage(t, t.meta, r.Name)
	for kept := 0; ; kept++ {
		r.Observer.Begun(r.Stream)
		begun := time.Now()
		err := s.begin(t)
		if err == nil {
			err = r.handler.Handle(r.work, m)
		}
		took := time.Since(begun)
		if decision := adapter.Decide(r.work, err); decision != adapter.Keep {
			t.stop()
			r.Observer.Ended(r.Stream, s.settle(t, m, err, decision), took)
			return
		}
		r.Observer.Ended(r.Stream, consumer.Retried, took)
		if errors.Is(err, consumer.ErrBusy) {
			if !s.await(t, m, err) {
				s.giveBack(t)
			}
			return
		}
		if !s.pause(m, err, kept) {
			s.giveBack(t)
			return
		}
	}
}

// spread is how much later a message is handled, by chance, that was delivered more often than allowed: see suspect.
const spread = 2 * time.Second

// suspect reports a message that may end its processes. Messages that are with a process when it ends are delivered
// again together, so each has the count of the guilty one. In an order by chance, half of the others are handled before
// it each time, and leave it.
func (s *session) suspect(t *task) bool {
	delivered := int(t.meta.NumDelivered) //nolint:gosec // few
	limit := s.run.MaxDeliveries
	return limit > 0 && s.run.failures.unexplained(t.meta.Sequence.Stream, delivered) > limit
}

// take hands a message to the workers.
func (s *session) take(t *task) {
	if !s.suspect(t) || !s.later(t, rand.N(spread)) { //nolint:gosec // jitter is no secret
		s.tasks <- t
	}
}

// pause waits before a message is handled again whose handler cannot work for now; false when no more is to be handled
// here. The message stays: each return to the server would count as a delivery.
func (s *session) pause(m *consumer.Message, err error, kept int) bool {
	delay := s.run.retry.Delay(kept)
	s.log().Failure(slog.LevelWarn, "the message waits here and uses no delivery", m, err,
		slog.Int64("retry_in_ms", delay.Milliseconds()))
	wait, cancel := context.WithCancel(s.run.stopping)
	defer cancel()
	defer context.AfterFunc(s.connected, cancel)()
	return backoff.Sleep(wait, delay) == nil
}

// settle gives the server the result of a message that was handled with err.
func (s *session) settle(t *task, m *consumer.Message, err error, decision adapter.Decision) consumer.Result {
	switch decision {
	case adapter.Acknowledge:
		s.acknowledge(t, m)
		return consumer.Effect
	case adapter.Drop:
		s.log().Dropped(m)
		s.acknowledge(t, m)
		return consumer.Duplicate
	case adapter.DeadLetter:
		return s.bury(t, m, err)
	case adapter.GiveBack, adapter.Keep:
		s.run.failures.exclude(t.meta.Sequence.Stream)
		return s.again(t, m, err, 0)
	case adapter.Retry:
		if s.lastFailure(t) {
			return s.bury(t, m, err)
		}
	}
	return s.again(t, m, err, s.run.retry.Delay(m.Deliveries))
}

// lastFailure notes the failure of a message, and reports whether the message becomes a dead letter.
func (s *session) lastFailure(t *task) bool {
	limit := s.run.MaxDeliveries
	delivered := int(t.meta.NumDelivered) //nolint:gosec // deliveries are few
	count := s.run.failures.noteFailure(t.meta.Sequence.Stream, delivered)
	return limit > 0 && count >= limit
}

// acknowledge waits for the server's word: without it the message is redelivered, and found by its id.
func (s *session) acknowledge(t *task, m *consumer.Message) {
	if s.isReplaced() {
		return
	}
	s.run.failures.forget(t.meta.Sequence.Stream)
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	if err := s.refusals.Ask(ctx, t.Reply(), t.DoubleAck); err != nil {
		s.log().Line(slog.LevelWarn, "acknowledgement not confirmed; the message may be redelivered", m, err)
	}
}

// again has the server deliver a message once more after a delay, or at once for 0.
func (s *session) again(t *task, m *consumer.Message, err error, delay time.Duration) consumer.Result {
	s.log().Again(m, err, delay)
	if s.isReplaced() {
		return consumer.Retried
	}
	s.takeBack(t)
	// On a failure the message is redelivered after AckWait.
	if delay > 0 {
		_ = t.NakWithDelay(delay)
	} else {
		_ = t.Nak()
	}
	return consumer.Retried
}

// bury makes a message a dead letter. The message is acknowledged only when the stream has the copy.
func (s *session) bury(t *task, m *consumer.Message, cause error) consumer.Result {
	if s.run.DeadLetterStream == "" {
		const consequence = "message rejected and dropped; name a DeadLetterStream to keep such messages"
		s.log().Failure(slog.LevelError, consequence, m, cause)
		s.acknowledge(t, m)
		return consumer.Dead
	}
	letter := s.letter(t, cause)
	if err := s.post(t, letter); err != nil {
		cause = errors.Join(cause, fmt.Errorf("dead letter to %s: %w", letter.Subject, err))
		return s.again(t, m, cause, s.run.retry.Delay(m.Deliveries))
	}
	s.log().Dead(m, cause)
	s.acknowledge(t, m)
	return consumer.Dead
}

func (s *session) log() adapter.Log {
	return adapter.Log{Context: s.run.work, Logger: s.run.Logger, Name: func(m *consumer.Message) []slog.Attr {
		return adapter.Name(m, slog.Int("deliveries", m.Deliveries+1))
	}}
}
