package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/ground/logtext"
	"github.com/msghandler/msghandler/producer/marker/sql"
)

// Observer receives the results of a relay, for metrics and alerts. Its methods are called by the relay's own
// goroutine and must not block. Package outboxmetrics has an Observer for Prometheus.
type Observer interface {
	// Relayed: this many messages of a batch had this fate, and the table has recorded the fate.
	Relayed(fate Fate, messages int)
	// Failed: these messages were refused up to the limit, and are not sent any more until Retry.
	Failed(ids []string)
	// Counted: the current numbers of the table.
	Counted(backlog sql.Backlog)
}

type unobserved struct{}

func (unobserved) Relayed(Fate, int)   {}
func (unobserved) Failed([]string)     {}
func (unobserved) Counted(sql.Backlog) {}

// String gives the fate's name.
func (f Fate) String() string {
	switch f {
	case Unreached:
		return "unreached"
	case Sent:
		return "sent"
	case Handed:
		return "handed"
	case Refused:
		return "refused"
	case Early:
		return "early"
	}
	return fmt.Sprintf("fate(%d)", uint8(f))
}

// log writes a line for a message that has left, with its id and place.
func (r *Relay) log(ctx context.Context, q sql.Queued, fate Fate) {
	said := map[Fate]string{Sent: "message published", Handed: "message handed to the coordinator"}[fate]
	if said == "" || !r.config.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	r.config.Logger.LogAttrs(ctx, slog.LevelDebug, said, slog.String("message_id", q.Name()),
		slog.String("exchange", q.Message.Exchange), slog.String("routing_key", q.Message.RoutingKey),
		slog.Int("claims", q.Claims))
}

// shownIDs is how many ids a log line names.
const shownIDs = 10

// report passes the recorded fates of messages to the observer and the log.
func (r *Relay) report(all []judgement) {
	fates := map[Fate]int{}
	var failed, names []string
	var cause error
	for _, j := range all {
		fates[j.Fate]++
		if j.outcome.State == sql.StateFailed {
			failed, names, cause = append(failed, j.outcome.ID), append(names, j.name), j.Err
		}
	}
	for fate, n := range fates {
		r.config.Observer.Relayed(fate, n)
	}
	if len(failed) == 0 {
		return
	}
	r.config.Observer.Failed(failed)
	r.config.Logger.Error(r.sendingFailed("committed messages were refused up to the limit and are not sent any more; "+
		"fix the cause, find all by Failures, and Retry them"),
		"messages", len(failed), "message_ids", names[:min(len(names), shownIDs)], "cause", cause)
}

// refusals are the messages that were refused for the first time and have no log line yet.
type refusals struct {
	messages int
	names    []string // of the first shownIDs
	cause    error
	// quietUntil is when the next line may be written.
	quietUntil time.Time
}

func (f *refusals) note(j judgement) {
	f.messages, f.cause = f.messages+1, j.Err
	if len(f.names) < shownIDs {
		f.names = append(f.names, j.name)
	}
}

// refusalsInterval is how often there is a line about refused messages.
const refusalsInterval = 10 * time.Second

// log writes a line about the noted messages, at once or when the interval of the last line is over: a queue that is
// missing is found before its messages fail.
func (f *refusals) log(logger *slog.Logger) {
	if f.messages == 0 || time.Now().Before(f.quietUntil) {
		return
	}
	logger.Warn("rows refused; they are sent again after a pause; correct the cause before they fail",
		"messages", f.messages, "message_ids", f.names, "cause", f.cause)
	*f = refusals{quietUntil: time.Now().Add(refusalsInterval)}
}

// unreachedError is the error of messages that did not reach their receiver.
type unreachedError struct{ error }

func (e unreachedError) Unwrap() error { return e.error }

// logTrouble logs a pass that failed: its messages could not be sent, or the table could not be used.
func (r *Relay) logTrouble(err error) {
	line := "the outbox could not be relayed; its messages wait; the relay retries"
	if errors.As(err, &unreachedError{}) {
		line = r.sendingFailed(line)
	}
	r.config.Logger.Warn(line, "cause", err)
}

// sendingFailed is a log line about messages that could not be sent.
func (r *Relay) sendingFailed(consequence string) string {
	return logtext.SendingFailed.Line(logtext.Language(r.config.Language), consequence)
}

// count passes the numbers of the table to the observer, once per CountInterval.
func (r *Relay) count(ctx context.Context) {
	if r.config.Observer == (unobserved{}) || time.Now().Before(r.countAt) || ctx.Err() != nil {
		return
	}
	r.countAt = time.Now().Add(r.config.CountInterval)
	ctx, cancel := context.WithTimeout(ctx, r.config.Lock/3) // claims wait meanwhile
	defer cancel()
	backlog, err := r.config.Table.Backlog(ctx)
	if err != nil {
		r.config.Logger.Warn("the outbox could not be counted", "cause", err)
		return
	}
	r.config.Observer.Counted(backlog)
}
