// Package adapter has what the consumers of the brokers are made of. Programs import the consumer of their broker.
package adapter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup"
)

// CancelGrace is how long handlers get to return after their context has ended.
const CancelGrace = 2 * time.Second

// Decision is what becomes of a message after its handler.
type Decision int

const (
	// Acknowledge a message: its handler succeeded.
	Acknowledge Decision = iota
	// Drop a message: a copy was handled before.
	Drop
	// DeadLetter makes a dead letter: the message can never be handled. The handler decides so also when its time has
	// ended.
	DeadLetter
	// GiveBack a message: the stop interrupted its handler.
	GiveBack
	// Keep a message in this process, to be handled again: the message is not at fault.
	Keep
	// Retry a message that failed, or make a dead letter at the limit.
	Retry
)

// Decide judges the answer of a handler whose context is work.
func Decide(work context.Context, err error) Decision {
	switch {
	case err == nil:
		return Acknowledge
	case errors.Is(err, consumer.ErrDuplicate):
		return Drop
	case errors.As(err, new(*consumer.RejectError)):
		return DeadLetter
	case work.Err() != nil:
		return GiveBack
	case errors.Is(err, consumer.ErrBusy), errors.Is(err, consumer.ErrTransient):
		return Keep
	}
	return Retry
}

// Decided is the context in which a consumer carries out a decision. When the context of the handlers has ended,
// Decided leaves CancelGrace.
func Decided(work context.Context) (context.Context, context.CancelFunc) {
	if work.Err() == nil {
		return context.WithCancel(work)
	}
	return context.WithTimeout(context.WithoutCancel(work), CancelGrace)
}

// Around puts around a handler what every consumer needs: a panic becomes an error, and a store drops copies.
func Around(h consumer.Handler, store dedup.Store, logger *slog.Logger) consumer.Handler {
	around := []consumer.Middleware{consumer.Recover()}
	if store != nil {
		around = append(around, consumer.Deduplicate(store, logger), consumer.Recover())
	}
	return consumer.Chain(h, around...)
}

const (
	// MaxCause is how many characters of an error are kept in a header.
	MaxCause = 1000
	// ShortCause is how many are kept in a copy that is too large otherwise.
	ShortCause = 100
	// KeptBody is how many bytes of the body a letter keeps that is too large even so.
	KeptBody = 1024
)

// Cause is the text of an error for a header: at most so many characters on one line.
func Cause(text string, most int) string {
	runes := []rune(strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " "))
	if len(runes) == 0 {
		return "an error without a text"
	}
	return string(runes[:min(len(runes), most)])
}

// Unobserved is the Observer of a consumer without one.
type Unobserved struct{}

// Begun implements consumer.Observer.
func (Unobserved) Begun(string) {}

// Ended implements consumer.Observer.
func (Unobserved) Ended(string, consumer.Result, time.Duration) {}

// Depth implements consumer.Observer.
func (Unobserved) Depth(string, int) {}

// DeadLetters implements consumer.Observer.
func (Unobserved) DeadLetters(string, int) {}
