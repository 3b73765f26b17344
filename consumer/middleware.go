package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

// ErrBusy reports another copy of the message in a handler right now. The message is handled again later, and is then
// dropped if that copy succeeded.
var ErrBusy = errors.New("another copy of the message is being handled")

// ErrDuplicate reports a copy of the message that was handled before. The message is acknowledged and dropped.
var ErrDuplicate = errors.New("a copy of the message was handled before")

// ErrUnsupportedType reports a message with an event type that the consumer does not know. Wrap ErrUnsupportedType in
// the error given to Reject, and the log line names the cause. Errors with a method UnsupportedType(), such as those of
// an event registry, have the same effect.
var ErrUnsupportedType error = unsupportedTypeError{}

type unsupportedTypeError struct{}

func (unsupportedTypeError) Error() string    { return logtext.UnsupportedType.In(logtext.English) }
func (unsupportedTypeError) UnsupportedType() {}

// markTimeout bounds the call that marks a message as handled, even after the end of the handler's context.
const markTimeout = 5 * time.Second

// Deduplicate returns ErrDuplicate for messages that were handled before, which store remembers by Message.Key.
// Config.Dedup puts Deduplicate around the handler given to Run. Messages without an id cannot be identified and
// always pass.
//
// If the store is unreachable before the handler, the handler does not run, and the error is Transient. If the
// store is unreachable after the handler, logger gets a warning: a further copy of the message would be handled
// twice.
func Deduplicate(store dedup.Store, logger *slog.Logger) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			if m.Key() == "" {
				return next.Handle(ctx, m)
			}
			status, err := store.Begin(ctx, m.Key())
			switch {
			case err != nil:
				return Transient(fmt.Errorf("ask whether the message was handled before: %w", err))
			case status == dedup.Done:
				return ErrDuplicate
			case status == dedup.Busy:
				return ErrBusy
			}
			return handleOnce(ctx, next, m, store, logger)
		})
	}
}

// handleOnce handles a message after Begin, and calls Done or Release.
func handleOnce(ctx context.Context, next Handler, m *Message, store dedup.Store, logger *slog.Logger) (err error) {
	handled := false
	defer func() { // Also when the handler panics.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), markTimeout)
		defer cancel()
		end := store.Release
		if handled {
			end = store.Done
		}
		if failed := end(ctx, m.Key()); failed != nil {
			logger.LogAttrs(ctx, slog.LevelWarn, "cannot note what became of a message",
				append(name(m), slog.Bool("handled", handled), slog.Any("cause", failed))...)
		}
	}()
	err = next.Handle(ctx, m)
	handled = err == nil
	return err
}

// Logging writes one line for each handled message, with its duration: at level Info, or Warn after a failure. A
// duplicate was not handled: its line is at level Debug. A line never holds a body or a header. The fixed texts are in
// the language of the consumer that delivered the message: the handler's context carries it.
func Logging(logger *slog.Logger) Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) error {
			begun, language := time.Now(), logtext.From(ctx)
			err := next.Handle(ctx, m)
			line := append(name(m), slog.String("queue", m.Queue), slog.String("consumer", m.Consumer),
				slog.Int64("took_ms", time.Since(begun).Milliseconds()))
			switch {
			case errors.Is(err, ErrDuplicate):
				logger.LogAttrs(ctx, slog.LevelDebug, logtext.AlreadyHandled.In(language), line...)
			case err != nil:
				logger.LogAttrs(ctx, slog.LevelWarn, logtext.OfFailure(err).Line(language, "message not handled"),
					append(line, slog.Any("cause", err))...)
			default:
				logger.LogAttrs(ctx, slog.LevelInfo, "message handled", line...)
			}
			return err
		})
	}
}

// name returns the log attributes of a message.
func name(m *Message) []slog.Attr {
	line := []slog.Attr{
		slog.String("message_id", m.Producer+"/"+m.ID), slog.Int("attempt", m.Attempt),
		slog.Bool("redelivered", m.Redelivered),
	}
	if trace := m.TraceID(); trace != "" {
		line = append(line, slog.String("trace_id", trace))
	}
	return line
}
