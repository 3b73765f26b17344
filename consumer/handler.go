package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Handler acts on one message. It may be called concurrently, at most Config.Concurrency times at once. The package
// comment says what its answer means. Its context ends only when a stop takes longer than Config.StopTimeout.
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

// RejectError says that a message can never be handled.
type RejectError struct {
	// Cause is why.
	Cause error
}

// Error is the cause's text.
func (e *RejectError) Error() string { return fmt.Sprintf("rejected: %v", e.Cause) }

// Unwrap gives the cause.
func (e *RejectError) Unwrap() error { return e.Cause }

// Reject wraps the error of a handler that will never succeed with this message, such as a body that cannot be read. The
// message goes to the queue's dead-letter exchange at once; a queue without one drops it. Reject(nil) is nil.
func Reject(cause error) error {
	if cause == nil {
		return nil
	}
	return &RejectError{Cause: cause}
}

// PanicError is a handler's panic as an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error names the panic, without its stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the error that was panicked with, if it was one.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Recover turns a panic of the handler into a PanicError, and likewise an error that panics when it is asked for its text
// or its kind, such as a nil pointer of an error's type. Run puts it around every handler.
func Recover() Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) (err error) {
			returned := false
			defer func() {
				// The value of a panic may be nil, where the program says GODEBUG=panicnil=1.
				if value := recover(); value != nil || !returned {
					err = newPanicError(value)
				}
			}()
			err = next.Handle(ctx, m)
			returned = true
			return sound(err)
		})
	}
}

func newPanicError(value any) *PanicError {
	if err, is := value.(error); is {
		value = sound(err)
	}
	return &PanicError{Value: value, Stack: debug.Stack()}
}

// sound gives back an error that can be asked what settle asks, where nobody recovers. For another it gives a PanicError
// that names its type.
func sound(err error) (asked error) {
	if err == nil {
		return nil
	}
	defer func() {
		if value := recover(); value != nil {
			asked = newPanicError(fmt.Sprintf("an error of type %T: %v", err, value))
		}
	}()
	_, _, _, _ = err.Error(), isReject(err), errors.Is(err, ErrDuplicate), errors.Is(err, ErrBusy)
	return err
}

func isReject(err error) bool {
	var reject *RejectError
	return errors.As(err, &reject)
}
