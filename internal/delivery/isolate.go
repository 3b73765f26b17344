package delivery

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a panic, turned into an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error names the panic; the stack is left to whoever logs it.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Isolate runs do over items. When it panics, the items are halved and each half is tried by itself, down to the one
// that brings it down, which is handed to aside; so do may see an item more than once.
func Isolate[T any](items []T, do func([]T), aside func(T, *PanicError)) {
	if len(items) == 0 {
		return
	}
	failure := Recovered(func() { do(items) })
	if failure == nil {
		return
	}
	if len(items) == 1 {
		aside(items[0], failure)
		return
	}
	half := len(items) / 2
	Isolate(items[:half], do, aside)
	Isolate(items[half:], do, aside)
}

// Recovered runs do and returns its panic, if it had one. A *PanicError that goes on as a panic keeps its stack.
func Recovered(do func()) (failure *PanicError) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *PanicError:
			failure = p
		default:
			failure = &PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	do()
	return nil
}
