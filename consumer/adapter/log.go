package adapter

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

// Log writes the lines of a consumer about its messages.
type Log struct {
	// Context is that of the lines, and has their language (logtext.With).
	Context context.Context
	Logger  *slog.Logger
	// Name names a message in attributes.
	Name func(*consumer.Message) []slog.Attr
}

// Dropped logs a copy of a handled message.
func (l Log) Dropped(m *consumer.Message) {
	l.Logger.LogAttrs(l.Context, slog.LevelDebug, logtext.AlreadyHandled.In(logtext.From(l.Context)), l.Name(m)...)
}

// Again logs a message that is handled again after a delay.
func (l Log) Again(m *consumer.Message, err error, delay time.Duration) {
	in := slog.Int64("retry_in_ms", delay.Milliseconds())
	if errors.Is(err, consumer.ErrBusy) {
		l.Line(slog.LevelDebug, "another copy of a message is being handled; this copy waits", m, err, in)
		return
	}
	l.Failure(slog.LevelWarn, "message will be redelivered", m, err, in)
}

// Dead logs a dead letter.
func (l Log) Dead(m *consumer.Message, err error) {
	l.Failure(slog.LevelWarn, "message rejected", m, err, slog.Int("retries", m.Retries))
}

// Failure logs the error of a handler, with its consequence.
func (l Log) Failure(level slog.Level, consequence string, m *consumer.Message, err error, more ...slog.Attr) {
	l.Line(level, logtext.OfFailure(err).Line(logtext.From(l.Context), consequence), m, err, more...)
}

// Line logs a text about a message and an error. The line of a panic has its stack.
func (l Log) Line(level slog.Level, text string, m *consumer.Message, err error, more ...slog.Attr) {
	line := append(append(l.Name(m), more...), slog.Any("cause", err))
	var panicked *consumer.PanicError
	if errors.As(err, &panicked) {
		line = append(line, slog.String("stack", string(panicked.Stack)))
	}
	l.Logger.LogAttrs(l.Context, level, text, line...)
}

// Name returns the log attributes of a message that consumers of all brokers have.
func Name(m *consumer.Message, more ...slog.Attr) []slog.Attr {
	line := append([]slog.Attr{
		slog.String("message_id", m.Producer+"/"+m.ID), slog.Int("attempt", m.Attempt),
	}, more...)
	if trace := m.TraceID(); trace != "" {
		line = append(line, slog.String("trace_id", trace))
	}
	return line
}
