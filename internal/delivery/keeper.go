package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Word is what an owner has found out about a message it holds.
type Word struct {
	Held
	Event halfmsg.Event
	// After, Hold and Cause are those of halfmsg.Settlement.
	After time.Duration
	Hold  time.Duration
	Cause string
}

// What became of a word, as Metrics hear it.
const (
	// Stored: the store has made the move.
	Stored = "stored"
	// LeaseLost: the message had another owner by then, or none; nothing was changed.
	LeaseLost = "lease_lost"
	// Contradiction: the message stands in a state that denies the verdict; the first one won.
	Contradiction = "contradiction"
	// Refused: the move was not legal, or the message is gone.
	Refused = "refused"
	// Unstored: the store could not be reached while the lease lasted. Another owner will find out anew.
	Unstored = "unstored"
)

// Metrics hears what became of owners' words. It must not block.
type Metrics interface {
	// Settled tells that so many messages had the event, and what became of it: one of the constants above.
	Settled(event halfmsg.Event, fate string, messages int)
}

// patience is how long to wait before the store is asked again: it starts short because batches wait meanwhile, and
// stays below the time in which Redis comes back from a restart.
var patience = backoff.Exponential(50*time.Millisecond, 2*time.Second)

// storeTimeout bounds one call to the store: far longer than one that works ever takes.
const storeTimeout = 5 * time.Second

// Keeper stores owners' words. It is safe for concurrent use.
type Keeper struct {
	// Store is where they are stored. Required.
	Store halfmsg.Settler
	// Watcher is told of messages that have changed their state; may be nil.
	Watcher halfmsg.Watcher
	// Metrics may be nil.
	Metrics Metrics
	// Logger gets contradictions and words that could not be stored. Default slog.Default().
	Logger *slog.Logger
}

// Settle stores words and hands what became of them to then, in groups as the store answers: once as a rule, and again
// for those for which the store could not be reached at first. Such words are tried again as long as the message's
// lease lasts and the context has not ended; then they are handed over with the store's error. Watcher and metrics have
// been told of a group before then sees it. Settle returns when every word has been handed over.
func (k *Keeper) Settle(ctx context.Context, words []Word, then func(words []Word, results []halfmsg.Result)) {
	for failures := 0; len(words) > 0; failures++ {
		last := ctx.Err() != nil
		var answered, again []Word
		var results []halfmsg.Result
		answers := k.ask(ctx, words)
		now := time.Now()
		for i, w := range words {
			if !last && outOfReach(answers[i].Err) && w.Until.After(now) {
				again = append(again, w)
				continue
			}
			answered, results = append(answered, w), append(results, answers[i])
		}
		if len(answered) > 0 {
			k.tell(answered, results)
			then(answered, results)
		}
		if words = again; len(words) > 0 {
			// When the context ends the words get one last try.
			_ = backoff.Sleep(ctx, patience.Delay(failures))
		}
	}
}

func (k *Keeper) ask(ctx context.Context, words []Word) []halfmsg.Result {
	settlements := make([]halfmsg.Settlement, len(words))
	for i := range words {
		w := &words[i]
		settlements[i] = halfmsg.Settlement{
			Name: w.Name, Token: w.Token, Fingerprint: w.Fingerprint, Event: w.Event, After: w.After, Hold: w.Hold, Cause: w.Cause,
			Backlog: w.Backlog,
		}
	}
	// What was found out is stored even when its finder is being stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return k.Store.Settle(ctx, settlements)
}

func outOfReach(err error) bool {
	return errors.Is(err, halfmsg.ErrUnavailable) || errors.Is(err, halfmsg.ErrUncertain)
}

// tally counts words that fared alike.
type tally map[tallied]int

type tallied struct {
	event halfmsg.Event
	fate  string
}

func (k *Keeper) tell(words []Word, results []halfmsg.Result) {
	var moves []halfmsg.Moved
	var unstored error
	counts := tally{}
	for i := range words {
		w, r := &words[i], results[i]
		fate := fateOf(w.Event, r)
		counts[tallied{w.Event, fate}]++
		switch fate {
		case Stored:
			if r.State != w.State {
				moves = append(moves, halfmsg.Moved{Name: w.Name, State: r.State})
			}
		case Unstored:
			unstored = r.Err
		case Contradiction:
			k.logger().Error("the producer's verdict contradicts the one that stands",
				"message", w.Name, "verdict", w.Event, "state", r.State)
		case Refused:
			k.logger().Warn("a move was refused", "message", w.Name, "event", w.Event, "state", r.State, "error", r.Err)
		}
	}
	k.tellMetrics(counts)
	if unstored != nil {
		k.logger().Warn("could not store what was found out; it is left to the next owner",
			"messages", counts.of(Unstored), "error", unstored)
	}
	if k.Watcher != nil && len(moves) > 0 {
		k.Watcher.Moved(moves)
	}
}

func (k *Keeper) tellMetrics(counts tally) {
	if k.Metrics == nil {
		return
	}
	for key, n := range counts {
		k.Metrics.Settled(key.event, key.fate, n)
	}
}

func (t tally) of(fate string) (n int) {
	for key, count := range t {
		if key.fate == fate {
			n += count
		}
	}
	return n
}

func (k *Keeper) logger() *slog.Logger { return cmp.Or(k.Logger, slog.Default()) }

// fateOf says what became of a word.
func fateOf(event halfmsg.Event, r halfmsg.Result) string {
	switch {
	case r.Err == nil:
		return Stored
	case contradicts(event, r.State):
		return Contradiction
	case errors.Is(r.Err, halfmsg.ErrLeaseLost):
		return LeaseLost
	case outOfReach(r.Err):
		return Unstored
	}
	return Refused
}

// contradicts says whether a state that stands denies a verdict. It is asked only about moves that were refused.
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

// CauseOf is an error as it may be kept with a message: its text, cut at halfmsg.MaxCause characters.
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
