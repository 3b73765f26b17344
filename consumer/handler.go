package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// Handler acts on one message. Handle may be called concurrently, at most Config.Concurrency times at once. The
// package comment explains its answers. The context of Handle ends only when a stop takes longer than
// Config.StopTimeout.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, m *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

// Middleware does something around a handler.
type Middleware func(Handler) Handler

// Chain puts middleware around a handler; the first is the outermost.
func Chain(h Handler, around ...Middleware) Handler {
	for i := len(around) - 1; i >= 0; i-- {
		h = around[i](h)
	}
	return h
}

// RejectError marks a message that can never be handled.
type RejectError struct {
	// Cause is the reason.
	Cause error
}

// Error is the cause's text.
func (e *RejectError) Error() string { return fmt.Sprintf("rejected: %v", e.Cause) }

// Unwrap gives the cause.
func (e *RejectError) Unwrap() error { return e.Cause }

// Reject wraps the error of a handler that will never succeed with this message, such as an unreadable body. The
// message becomes a dead letter at once. A queue of RabbitMQ without a dead-letter exchange, and a consumer on NATS
// without a DeadLetterStream, drop the message. Reject(nil) is nil.
func Reject(cause error) error {
	if cause == nil {
		return nil
	}
	return &RejectError{Cause: cause}
}

// ErrTransient reports that the handler's own surroundings failed, such as its database. The message is not at fault:
// it stays in the process, is handled again after a pause, and uses no retry. While all messages in the process wait
// like this, the consumer takes no further ones.
var ErrTransient = errors.New("the handler cannot work for now")

// Transient wraps the error of a handler whose surroundings failed; see ErrTransient. Transient(nil) is nil.
func Transient(cause error) error {
	if cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrTransient, cause)
}

// PanicError is a handler's panic as an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error names the panic, without its stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if the value is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover turns a panic of the handler into a PanicError, and likewise an error whose methods panic, such as a nil
// pointer of an error's type. Run puts Recover around every handler.
func Recover() Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) (err error) {
			if panicked := lifecycle.Recovered(func() { err = next.Handle(ctx, m) }); panicked != nil {
				return newPanicError(panicked)
			}
			return sound(err)
		})
	}
}

func newPanicError(panicked *lifecycle.PanicError) *PanicError {
	value := panicked.Value
	if err, is := value.(error); is {
		value = sound(err)
	}
	return &PanicError{Value: value, Stack: panicked.Stack}
}

// sound returns err if its methods do not panic, because settle calls them without a recover. Otherwise sound returns
// a PanicError that names the type of err.
func sound(err error) error {
	if err == nil {
		return nil
	}
	panicked := lifecycle.Recovered(func() {
		_, _, _, _ = err.Error(), isReject(err), errors.Is(err, ErrDuplicate), errors.Is(err, ErrBusy)
		_ = errors.Is(err, ErrTransient)
	})
	if panicked != nil {
		text := fmt.Sprintf("an error of type %T: %v", err, panicked.Value)
		return &PanicError{Value: text, Stack: panicked.Stack}
	}
	return err
}

func isReject(err error) bool {
	var reject *RejectError
	return errors.As(err, &reject)
}
