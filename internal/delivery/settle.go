package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Outcome is what a loop has found out about a message that this coordinator holds.
type Outcome struct {
	Leased
	Event halfmsg.Event
	// After, Hold and Cause are those of halfmsg.Settlement.
	After time.Duration
	Hold  time.Duration
	Cause string
	// Took is how long the broker took to answer; zero for other outcomes.
	Took time.Duration
}

// The fates of an outcome, as Metrics get them.
const (
	// Stored: the store has made the move.
	Stored = "stored"
	// LeaseLost: another coordinator held the message by then, or none did; nothing was changed.
	LeaseLost = "lease_lost"
	// Contradiction: the stored state contradicts the verdict. The first verdict wins.
	Contradiction = "contradiction"
	// Refused: the move was not legal, or the message is gone.
	Refused = "refused"
	// Unstored: the store was unavailable while the lease lasted. The next lease holder finds out again.
	Unstored = "unstored"
)

// Metrics counts the fates of outcomes. Its methods must not block.
type Metrics interface {
	// Settled counts messages that had the event, by fate: one of the constants above.
	Settled(event halfmsg.Event, fate string, messages int)
}

// storeRetryPause is how long to wait before the store is called again. The first pause is short because batches wait
// meanwhile; the longest is below the time that Redis takes to restart.
var storeRetryPause = backoff.Exponential(50*time.Millisecond, 2*time.Second)

// storeTimeout bounds one call to the store, at far more than a call takes that succeeds.
const storeTimeout = 5 * time.Second

// maxLate is how many outcomes may wait beside their batches, with their messages in memory. Batches with further ones
// keep their places: claims may succeed where outcomes cannot be stored.
const maxLate = 10_000

// Settler stores outcomes. A Settler is safe for concurrent use.
type Settler struct {
	// Store is where outcomes are stored. Required.
	Store halfmsg.Settler
	// Watcher gets messages that have changed their state; may be nil.
	Watcher halfmsg.Watcher
	// Metrics may be nil.
	Metrics Metrics
	// Logger gets contradictions. Required.
	Logger *slog.Logger
	// Failures gets refused moves, and outcomes that could not be stored. Required.
	Failures *loglimit.Gatherer
	// Work runs what goes on after Settle; who closes the loop waits for the group. Required.
	Work *lifecycle.Group
	// answers counts the answers of the store, late the outcomes that wait beside their batches.
	answers, late int32
}

// Settle stores outcomes and hands the results to onSettled, in groups as the store answers: one group as a rule, and
// further groups for outcomes that met an unavailable store. Settle retries these until the message's lease or the
// context ends, and then hands them over with the store's error. Watcher and Metrics get a group before onSettled does.
// Settle returns when every outcome has been handed over. When the store answers for other outcomes meanwhile, only a
// part of it is unavailable: then Settle returns before, and Work hands over the rest, up to maxLate. A batch must not
// hold its place for the lease of a message whose shard is away.
func (s *Settler) Settle(
	ctx context.Context, outcomes []Outcome, onSettled func(outcomes []Outcome, results []halfmsg.Result),
) {
	answers := atomic.LoadInt32(&s.answers)
	for failures := 0; ; failures++ {
		if outcomes = s.settleOnce(ctx, outcomes, onSettled); len(outcomes) == 0 {
			return
		}
		if atomic.LoadInt32(&s.answers) != answers && s.settleBeside(ctx, failures, outcomes, onSettled) {
			return
		}
		// When the context ends, the outcomes get one last try.
		_ = backoff.Sleep(ctx, storeRetryPause.Delay(failures))
	}
}

// settleBeside has Work settle outcomes that have failed so often, unless too many wait so already.
func (s *Settler) settleBeside(
	ctx context.Context, failures int, outcomes []Outcome, onSettled func([]Outcome, []halfmsg.Result),
) bool {
	n := int32(min(len(outcomes), maxLate+1))
	if atomic.AddInt32(&s.late, n) > maxLate {
		atomic.AddInt32(&s.late, -n)
		return false
	}
	assert.Sometimes(true, "outcomes of one shard wait beside their batch")
	s.Work.Go(func() {
		defer atomic.AddInt32(&s.late, -n)
		if failure := lifecycle.Recovered(func() {
			for ; len(outcomes) > 0; failures++ {
				_ = backoff.Sleep(ctx, storeRetryPause.Delay(failures))
				outcomes = s.settleOnce(ctx, outcomes, onSettled)
			}
		}); failure != nil {
			s.Logger.Error("late outcomes panicked: their messages keep their state; the next lease holder retries",
				"messages", len(outcomes), "cause", failure, "stack", string(failure.Stack))
		}
	})
	return true
}

// settleOnce stores outcomes with one call, and returns those to try again.
func (s *Settler) settleOnce(
	ctx context.Context, outcomes []Outcome, onSettled func(outcomes []Outcome, results []halfmsg.Result),
) (again []Outcome) {
	last := ctx.Err() != nil
	answered, results := outcomes, s.store(ctx, outcomes)
	if slices.ContainsFunc(results, func(r halfmsg.Result) bool { return !unstored(r) }) {
		atomic.AddInt32(&s.answers, 1)
	}
	if !last && slices.ContainsFunc(results, unstored) {
		answered, results, again = sortOut(outcomes, results)
	}
	if len(answered) > 0 {
		s.report(answered, results)
		onSettled(answered, results)
	}
	return again
}

// sortOut splits off the outcomes that the store was unavailable for, and whose leases last.
func sortOut(
	outcomes []Outcome, answers []halfmsg.Result,
) (answered []Outcome, results []halfmsg.Result, again []Outcome) {
	now := time.Now()
	for i, o := range outcomes {
		if unstored(answers[i]) && o.Until.After(now) {
			again = append(again, o)
		} else {
			answered, results = append(answered, o), append(results, answers[i])
		}
	}
	return answered, results, again
}

func (s *Settler) store(ctx context.Context, outcomes []Outcome) []halfmsg.Result {
	settlements := make([]halfmsg.Settlement, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		_, legal := halfmsg.Next(o.State, o.Event)
		assert.Always(legal && o.Event.NeedsLease() && o.Token != "", "an outcome is a legal move of a claimed message",
			o.Producer, o.ID, o.State.String(), o.Event.String())
		settlements[i] = halfmsg.Settlement{
			Name: o.Name, OrderingKey: o.OrderingKey, Token: o.Token, Fingerprint: o.Fingerprint, Event: o.Event,
			After: o.After, Hold: o.Hold, Cause: o.Cause, Backlog: o.Backlog, Prompt: o.Prompt,
		}
	}
	// An outcome is stored even while the coordinator stops.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return s.Store.Settle(ctx, settlements)
}

func unavailable(err error) bool {
	return errors.Is(err, halfmsg.ErrUnavailable) || errors.Is(err, halfmsg.ErrUncertain)
}

func unstored(r halfmsg.Result) bool { return r.Err != nil && unavailable(r.Err) }

// fates counts outcomes by event and fate.
type fates map[fateKey]int

type fateKey struct {
	event halfmsg.Event
	fate  string
}

// report hands results to the log, the metrics and the watcher.
func (s *Settler) report(outcomes []Outcome, results []halfmsg.Result) {
	var moves []halfmsg.Moved
	var cause error
	counts := fates{}
	for i := range outcomes {
		o, r := &outcomes[i], results[i]
		fate := fateOf(o.Event, r)
		counts[fateKey{o.Event, fate}]++
		switch fate {
		case Stored:
			if r.State != o.State {
				moves = append(slices.Grow(moves, len(outcomes)-i), halfmsg.Moved{Name: o.Name, State: r.State})
			}
		case Unstored:
			cause = r.Err
		case Contradiction:
			s.Logger.Error("verdict contradicts the stored state: the first verdict stands; check the producer's markers",
				"message_id", o.Name, "verdict", o.Event, "state", r.State)
		case Refused:
			s.Failures.Add(loglimit.Failure{
				Level: slog.LevelWarn, Text: "moves refused: the messages keep their state", Producer: o.Producer,
				MessageID: o.Name.String(), Cause: CauseOf(r.Err),
				More: []slog.Attr{slog.Any("move", o.Event), slog.Any("state", r.State)},
			})
		}
	}
	assert.Sometimes(counts.of(LeaseLost) > 0, "an outcome comes after the end of its lease")
	assert.Sometimes(counts.of(Contradiction) > 0, "a verdict contradicts the stored state")
	s.countFates(counts)
	if cause != nil {
		s.Failures.Add(loglimit.Failure{
			Level: slog.LevelWarn, Text: "store unavailable: outcomes not stored; the next lease holder retries",
			Messages: counts.of(Unstored), Cause: CauseOf(cause),
		})
	}
	if s.Watcher != nil && len(moves) > 0 {
		s.Watcher.Moved(moves)
	}
}

func (s *Settler) countFates(counts fates) {
	if s.Metrics == nil {
		return
	}
	for key, n := range counts {
		s.Metrics.Settled(key.event, key.fate, n)
	}
}

func (f fates) of(fate string) (n int) {
	for key, count := range f {
		if key.fate == fate {
			n += count
		}
	}
	return n
}

// fateOf is the fate of an outcome with that event, given the store's answer.
func fateOf(event halfmsg.Event, r halfmsg.Result) string {
	switch {
	case r.Err == nil:
		return Stored
	case contradicts(event, r.State):
		return Contradiction
	case errors.Is(r.Err, halfmsg.ErrLeaseLost):
		return LeaseLost
	case unavailable(r.Err):
		return Unstored
	}
	return Refused
}

// contradicts says whether the stored state contradicts a verdict. Only moves that the store has refused are asked
// about.
func contradicts(verdict halfmsg.Event, state halfmsg.State) bool {
	if verdict == halfmsg.EventCommitted {
		return state == halfmsg.RolledBack
	}
	switch state {
	case halfmsg.Sendable, halfmsg.Acknowledged, halfmsg.Done, halfmsg.Dead:
		return verdict == halfmsg.EventRolledBack
	}
	return false
}

// CauseOf is an error as a message keeps it: the error's text, cut at halfmsg.MaxCause characters.
func CauseOf(err error) string {
	if err == nil {
		return ""
	}
	text := fmt.Sprint(err)
	if runes := []rune(text); len(runes) > halfmsg.MaxCause {
		return string(runes[:halfmsg.MaxCause])
	}
	return text
}
