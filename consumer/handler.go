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
func (e *RejectError) Error() string { return "rejected: " + e.Cause.Error() }

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

// Recover turns a panic of the handler into a PanicError. Run puts it around every handler.
func Recover() Middleware {
	return func(next Handler) Handler {
		return HandlerFunc(func(ctx context.Context, m *Message) (err error) {
			defer func() {
				if value := recover(); value != nil {
					err = &PanicError{Value: value, Stack: debug.Stack()}
				}
			}()
			return next.Handle(ctx, m)
		})
	}
}

func isReject(err error) bool {
	var reject *RejectError
	return errors.As(err, &reject)
}
