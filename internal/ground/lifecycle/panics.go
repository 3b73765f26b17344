package lifecycle

import (
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// PanicError is a panic, turned into an error.
type PanicError struct {
	Value any
	Stack []byte
}

// Error names the panic. The stack is for the log.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if the value is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// panics counts the panics that became errors in this process.
var panics atomic.Int64

// Panics is how many panics have become errors in this process.
func Panics() int64 { return panics.Load() }

// Recovered runs do and returns its panic, if do has panicked. A *PanicError that is raised again keeps its stack.
func Recovered(do func()) (failure *PanicError) {
	returned := false
	defer func() {
		// With GODEBUG=panicnil=1 the value of a panic may be nil.
		switch value := recover().(type) {
		case *PanicError:
			failure = value
		default:
			if !returned {
				panics.Add(1)
				failure = &PanicError{Value: value, Stack: debug.Stack()}
			}
		}
	}()
	do()
	returned = true
	return nil
}
