package loglimit

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Interval is how often a Gatherer writes a line about a cause that lasts.
const Interval = 10 * time.Second

// maxCauses bounds the causes that a Gatherer tells apart at a time. Further causes of a text share a line.
const maxCauses = 1000

// Failure is what went wrong with a message, or with several at once.
type Failure struct {
	Level slog.Level
	// Text says what happened, the consequence and the action, about any number of messages.
	Text string
	// Producer and Exchange are the message's; both may be empty. They tell failures apart.
	Producer, Exchange string
	// Messages is how many messages failed together; 0 means one.
	Messages int
	// MessageID is PRODUCER/ID. A line has the message_id of one of its messages.
	MessageID string
	// Cause tells failures apart, except for its digits and the message's id.
	Cause string
	// More are further attributes of this one message.
	More []slog.Attr
}

// messages is how many messages failed.
func (f *Failure) messages() int { return max(1, f.Messages) }

// Gatherer writes one log line for each cause, producer and exchange in an interval, however many messages fail: the
// first message at once, and all others of an interval as one line at its end, with their number as count. A Gatherer
// is safe for concurrent use.
type Gatherer struct {
	logger *slog.Logger

	mu     sync.Mutex
	causes map[cause]*gathered
}

// cause tells failures apart.
type cause struct{ text, producer, exchange, error string }

// gathered are the failures of a cause that have no line yet, with the latest of them.
type gathered struct {
	count  int
	latest Failure
	timer  *time.Timer
}

// NewGatherer returns a Gatherer for a logger. Nil means slog.Default().
func NewGatherer(logger *slog.Logger) *Gatherer {
	return &Gatherer{logger: cmp.Or(logger, slog.Default()), causes: map[cause]*gathered{}}
}

// Add logs a failure now, or with the others of its interval.
func (g *Gatherer) Add(f Failure) {
	if g.join(f) {
		g.write(f, f.messages())
	}
}

// join enters a failure, and says whether the failure is the first of its cause.
func (g *Gatherer) join(f Failure) (first bool) {
	of := cause{f.Text, f.Producer, f.Exchange, f.alike()} // before the lock: all loops share it
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.causes[of] == nil && len(g.causes) >= maxCauses {
		of = cause{text: f.Text}
	}
	if known := g.causes[of]; known != nil {
		known.count += f.messages()
		known.latest = f
		return false
	}
	g.causes[of] = &gathered{timer: time.AfterFunc(Interval, func() { g.end(of) })}
	return true
}

// end ends an interval of a cause. A cause without a failure in the interval is forgotten.
func (g *Gatherer) end(of cause) {
	g.mu.Lock()
	known := g.causes[of]
	if known == nil {
		g.mu.Unlock()
		return
	}
	failures := *known
	known.count = 0
	if failures.count == 0 {
		delete(g.causes, of)
	} else {
		known.timer.Reset(Interval)
	}
	g.mu.Unlock()
	g.write(failures.latest, failures.count)
}

// Flush writes the lines of unfinished intervals, before the process ends.
func (g *Gatherer) Flush() {
	g.mu.Lock()
	causes := g.causes
	g.causes = map[cause]*gathered{}
	g.mu.Unlock()
	for _, known := range causes {
		known.timer.Stop()
		g.write(known.latest, known.count)
	}
}

// write writes a line about a number of failures, with the latest as the example.
func (g *Gatherer) write(f Failure, count int) {
	if count == 0 {
		return
	}
	line := []slog.Attr{slog.Int("count", count)}
	for _, a := range []slog.Attr{
		slog.String("producer", f.Producer), slog.String("exchange", f.Exchange), slog.String("message_id", f.MessageID),
		slog.String("cause", f.Cause),
	} {
		if a.Value.String() != "" {
			line = append(line, a)
		}
	}
	g.logger.LogAttrs(context.Background(), f.Level, f.Text, append(line, f.More...)...)
}

// alike is the cause without the id of the message and without digits, which differ between messages that fail for one
// cause.
func (f *Failure) alike() string {
	text := f.Cause
	if _, id, _ := strings.Cut(f.MessageID, "/"); id != "" {
		text = strings.ReplaceAll(text, id, "")
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}
