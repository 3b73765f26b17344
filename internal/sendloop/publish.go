package sendloop

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/logtext"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

var (
	// unsentPause is how long an unsent message waits. While the broker takes no messages the pause is the first
	// step: the broker may be back in a moment, and Pass waits for the broker anyway.
	unsentPause = backoff.Exponential(4*time.Second, time.Minute)
	// unsurePause is how long a message waits whose outcome is unknown. The pause grows with the copies that may be out.
	unsurePause = backoff.Exponential(2*time.Second, time.Minute)
)

// handBackTimeout is how long handing back is tried.
const handBackTimeout = 2 * time.Second

// publication is a batch on its way to the broker. The answers are stored in groups, as they come: a message whose
// queue does not confirm delays no other.
type publication struct {
	sender *Sender
	stage  *brokerStage
	lane   *publishLane
	batch  *delivery.Batch
	// storing has the groups that are being stored: a slow group delays no other.
	storing sync.WaitGroup
	// answered says that the broker has answered the batch. The mutex of the stage guards it.
	answered bool
}

// run publishes the batch, stores the answers, copies dead messages to the dead-letter exchange and stores them too.
func (p *publication) run() {
	lasting, ending := delivery.Lasting(p.batch.Messages, p.sender.config.Margin)
	p.sender.handBack(ending)
	p.batch.Messages = lasting
	defer p.noteAnswer()
	defer p.storing.Wait()
	tries := 0
	// When a batch makes the publisher panic, its parts are published again, as further copies since the first may be
	// out.
	delivery.Isolate(lasting, func(part []delivery.Leased) {
		again := min(tries, 1)
		tries++
		p.publish(part, again)
	}, p.quarantine)
}

// quarantine postpones a message that makes the publisher panic.
func (p *publication) quarantine(h delivery.Leased, failure *lifecycle.PanicError) {
	p.sender.failed(slog.LevelError, logtext.SendingFailed.Line(p.sender.config.Language,
		"poison messages: publishing panicked; each message backs off, see the stack"),
		&h.Claim, delivery.CauseOf(failure), slog.String("stack", string(failure.Stack)))
	assert.Always(h.State == halfmsg.Sendable, "a poison message stays SENDABLE", h.Producer, h.ID)
	p.store([]delivery.Outcome{{
		Leased: h, Event: halfmsg.EventUnsure, After: unsurePause.Delay(len(unsurePause)), Cause: delivery.CauseOf(failure),
	}})
}

// publish makes one Publish call. again is 1 when a call before it may have sent the same messages.
func (p *publication) publish(held []delivery.Leased, again int) {
	if err := p.stage.broker.Publisher.Ready(); err != nil {
		p.store(p.stage.unsent(held, delivery.CauseOf(err)))
		return
	}
	messages := make([]halfmsg.Publishing, len(held))
	for i, h := range held {
		assert.Always(h.State == halfmsg.Sendable && h.Token != "" && !h.SendableAt.IsZero(),
			"a message is published only with its verdict stored, by its lease holder", h.Producer, h.ID)
		messages[i] = publishing(h.Claim, again)
	}
	begun, someAnswered := time.Now(), false
	failure := lifecycle.Recovered(func() {
		p.stage.broker.Publisher.Publish(p.sender.calls, messages, func(places []int, results []halfmsg.PublishResult) {
			someAnswered = someAnswered || len(places) > 0
			outcomes, took := make([]delivery.Outcome, len(places)), time.Since(begun)
			for n, i := range places {
				outcomes[n] = p.stage.outcomeOf(held[i], results[n])
				outcomes[n].Took = took
				held[i].Body, messages[i].Body = nil, nil // or they would stay until the last message has an answer
			}
			p.count(outcomes, results, took)
			p.store(outcomes)
		})
	})
	switch {
	case failure == nil:
	case someAnswered:
		p.panicked(len(held), failure)
	default:
		panic(failure)
	}
}

func (p *publication) panicked(messages int, failure *lifecycle.PanicError) {
	p.sender.config.Logger.Error("publish batch panicked: its messages keep their state; the next lease holder retries",
		"messages", messages, "cause", failure, "stack", string(failure.Stack))
}

// count reports the outcomes to the metrics, acknowledgements last: the latest report is taken as the state of an
// exchange.
func (p *publication) count(outcomes []delivery.Outcome, results []halfmsg.PublishResult, took time.Duration) {
	if len(outcomes) == 0 {
		return
	}
	type published struct {
		exchange string
		outcome  halfmsg.Outcome
	}
	counts := map[published]int{}
	causes, acked := map[string]error{}, 0
	for i := range outcomes {
		exchange, result := outcomes[i].Exchange, results[i]
		counts[published{exchange, result.Outcome}]++
		if result.Outcome == halfmsg.Acked {
			acked++
		} else {
			causes[exchange] = result.Cause
		}
	}
	p.sender.config.Metrics.PublishedBatch(p.stage.name, len(outcomes), acked, took)
	for exchange, cause := range causes {
		p.sender.config.Metrics.Failed(p.stage.name, exchange, cause)
	}
	for _, acked := range []bool{false, true} {
		for key, n := range counts {
			if (key.outcome == halfmsg.Acked) == acked {
				p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, n)
			}
		}
	}
}

// store stores outcomes in the background. Messages that are about to become DEAD wait for their copies, apart from the
// others.
func (p *publication) store(outcomes []delivery.Outcome) {
	p.noteAnswer()
	p.storing.Go(func() {
		if failure := lifecycle.Recovered(func() {
			dying, others := p.dying(outcomes)
			p.storeOutcomes(others)
			if len(dying) > 0 {
				p.copyDead(dying)
				p.storeOutcomes(dying)
			}
		}); failure != nil {
			p.panicked(len(outcomes), failure)
		}
	})
}

// storeOutcomes stores outcomes, and hands acknowledged messages on. Outcomes whose shard is away wait without their
// bodies.
func (p *publication) storeOutcomes(outcomes []delivery.Outcome) {
	for i := range outcomes {
		outcomes[i].Body = nil
	}
	until := time.Now().Add(p.sender.config.Lease)
	p.sender.settler.Settle(p.sender.calls, outcomes, func(stored []delivery.Outcome, results []halfmsg.Result) {
		p.sender.conclude(stored, results, until)
	})
	p.batch.Settled(len(outcomes))
}

// noteAnswer lets the next batch follow when the broker has answered this one.
func (p *publication) noteAnswer() {
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	if !p.answered {
		p.answered = true
		p.lane.unanswered--
		p.stage.queue.Dispatch()
	}
}

// conclude hands on messages whose acknowledgement is stored. Messages with markers keep their lease until the markers
// are deleted.
func (s *Sender) conclude(outcomes []delivery.Outcome, results []halfmsg.Result, until time.Time) {
	var acked, marked []halfmsg.Claim
	logged := s.config.Logger.Enabled(s.calls, slog.LevelDebug)
	for i := range outcomes {
		o := &outcomes[i]
		if results[i].Err != nil {
			continue
		}
		if logged {
			s.logDelivery(o, results[i].State)
		}
		switch o.Event {
		case halfmsg.EventAcked:
			acked = append(slices.Grow(acked, len(outcomes)-i), o.Claim)
		case halfmsg.EventAckedMarked:
			o.Claim.State = halfmsg.Acknowledged
			marked = append(slices.Grow(marked, len(outcomes)-i), o.Claim)
		case halfmsg.EventExhausted:
			s.failed(slog.LevelWarn, logtext.SendingFailed.Line(s.config.Language,
				"messages are DEAD: the broker refused every attempt; correct the cause and retry the messages"),
				&o.Claim, o.Cause, slog.Int("attempts", o.PublishAttempts+1))
		case halfmsg.EventRefused:
			s.failed(slog.LevelWarn,
				"messages refused by the broker; they are published again after a pause; correct the cause before they are DEAD",
				&o.Claim, o.Cause, slog.Int("attempts", o.PublishAttempts+1), slog.Int64("retry_in_ms", o.After.Milliseconds()))
		default: // the message is due again later
		}
	}
	if len(acked) > 0 {
		s.config.Metrics.Acked(acked)
		s.config.Pipeline.Acknowledged(acked)
	}
	if len(marked) > 0 {
		s.config.Metrics.Acked(marked)
		s.config.Pipeline.AcknowledgedMarked(marked, until)
	}
}

// logDelivery logs what came of a publish attempt. A message that was not sent has had none.
func (s *Sender) logDelivery(o *delivery.Outcome, state halfmsg.State) {
	if o.Event == halfmsg.EventReleased {
		return
	}
	line := []slog.Attr{
		slog.Any("message_id", o.Name), slog.String("exchange", o.Exchange), slog.String("routing_key", o.RoutingKey),
		slog.Int("attempt", o.PublishAttempts+1), slog.Int64("took_ms", o.Took.Milliseconds()), slog.Any("state", state),
	}
	if o.Cause != "" {
		line = append(line, slog.String("cause", o.Cause))
	}
	s.config.Logger.LogAttrs(s.calls, slog.LevelDebug, "delivery", line...)
}

// failed logs a message that could not be published.
func (s *Sender) failed(level slog.Level, text string, of *halfmsg.Claim, cause string, more ...slog.Attr) {
	s.failures.Add(loglimit.Failure{
		Level: level, Text: text,
		Producer: of.Producer, Exchange: of.Exchange, MessageID: of.Name.String(), Cause: cause, More: more,
	})
}

func publishing(claim halfmsg.Claim, again int) halfmsg.Publishing {
	publication := ""
	if claim.Replayed { // a replay stores the message anew, so the time tells replays of one name apart
		publication = fmt.Sprintf("replay-%d", claim.CreatedAt.UnixMilli())
	}
	return halfmsg.Publishing{
		Name:        claim.Name,
		Exchange:    claim.Exchange,
		RoutingKey:  claim.RoutingKey,
		ContentType: claim.ContentType,
		Headers:     headers(&claim),
		Body:        claim.Body,
		Trace:       claim.Trace,
		DueAt:       claim.DueAt(),
		Attempt:     claim.EarlierCopies + claim.Copies + 1 + again,
		Publication: publication,
	}
}

// headers are the caller's, and the ordering key, on every broker.
func headers(claim *halfmsg.Claim) map[string]string {
	if claim.OrderingKey == "" {
		return claim.Headers
	}
	all := map[string]string{publish.HeaderKey: claim.OrderingKey}
	maps.Copy(all, claim.Headers)
	return all
}

// outcomeOf is the event that the broker's answer means for a message.
func (s *brokerStage) outcomeOf(h delivery.Leased, result halfmsg.PublishResult) delivery.Outcome {
	o := delivery.Outcome{Leased: h, Cause: delivery.CauseOf(result.Cause)}
	switch result.Outcome {
	case halfmsg.Acked:
		assert.Always(result.Cause == nil, "an acknowledged message was neither returned nor refused", h.Producer, h.ID)
		o.Event, o.Cause = halfmsg.EventAcked, ""
		if s.sender.config.DeleteAfterAck {
			o.Event, o.Hold = halfmsg.EventAckedMarked, s.sender.config.Lease
		}
	case halfmsg.Refused:
		o.Event, o.After = halfmsg.EventRefused, s.sender.config.Backoff.Delay(h.PublishAttempts)
		if h.PublishAttempts >= len(s.sender.config.Backoff) {
			o.Event, o.After = halfmsg.EventExhausted, 0
		}
	case halfmsg.Unsent:
		o.Event, o.After = halfmsg.EventReleased, s.pauseUnsent(h.DueFor())
	default: // a copy may be out
		o.Event, o.After = halfmsg.EventUnsure, unsurePause.Delay(h.Copies)
	}
	return o
}

// handBack gives messages back to the store, due at once.
func (s *Sender) handBack(held []delivery.Leased) {
	if len(held) == 0 {
		return
	}
	outcomes := make([]delivery.Outcome, len(held))
	for i, h := range held {
		assert.Always(h.Token != "", "the send stage hands back only what it holds", h.Producer, h.ID)
		outcomes[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased}
	}
	s.release(outcomes)
}

// postpone gives messages back to the store, due when the broker may be back.
func (s *brokerStage) postpone(held []delivery.Leased) {
	cause := ""
	if err := s.broker.Publisher.Ready(); err != nil {
		cause = delivery.CauseOf(err)
	}
	s.sender.release(s.unsent(held, cause))
}

// release stores that messages were handed back. Callers wait and the leases end anyway, so the time is short.
func (s *Sender) release(outcomes []delivery.Outcome) {
	if len(outcomes) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(s.calls)
	time.AfterFunc(handBackTimeout, cancel) // later than this call may return: the rest is tried beside
	s.settler.Settle(ctx, outcomes, func([]delivery.Outcome, []halfmsg.Result) {})
}

func (s *brokerStage) unsent(held []delivery.Leased, cause string) []delivery.Outcome {
	outcomes := make([]delivery.Outcome, len(held))
	for i, h := range held {
		assert.Always(h.State == halfmsg.Sendable, "an unsent message stays SENDABLE", h.Producer, h.ID)
		outcomes[i] = delivery.Outcome{Leased: h, Event: halfmsg.EventReleased, After: s.pauseUnsent(0), Cause: cause}
	}
	return outcomes
}

// pauseUnsent is how long an unsent message waits. While the broker takes other messages, old messages wait longer.
// While closing none waits, since another instance may send the message.
func (s *brokerStage) pauseUnsent(age time.Duration) time.Duration {
	away := s.broker.Publisher.Ready() != nil
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		return 0
	case away:
		return unsentPause.Delay(0)
	}
	return unsentPause.DelayAfter(age)
}
