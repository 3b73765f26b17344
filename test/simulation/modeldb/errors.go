package modeldb

import (
	"fmt"
	"net"
	"syscall"
)

// Error is an error of the server. Its text has the form of pgx.
type Error struct{ State, Message string }

// Error gives the text.
func (e *Error) Error() string { return fmt.Sprintf("ERROR: %s (SQLSTATE %s)", e.Message, e.State) }

// SQLState is the code by which the SDK knows the error.
func (e *Error) SQLState() string { return e.State }

// The codes of PostgreSQL that this package gives by itself.
const (
	stateSyntax        = "42601"
	stateNoTable       = "42P01"
	stateNoColumn      = "42703"
	stateTableThere    = "42P07"
	stateUnique        = "23505"
	stateNull          = "23502"
	stateCheck         = "23514"
	stateReadOnly      = "25006"
	stateFailed        = "25P02"
	stateLockTimeout   = "55P03"
	stateDeadlock      = "40P01"
	stateSerialization = "40001"
	stateShutdown      = "57P01"
)

// messages are the texts of errors that Faults asks for.
var messages = map[string]string{
	stateDeadlock:      "deadlock detected",
	stateSerialization: "could not serialize access due to concurrent update",
	stateShutdown:      "terminating connection due to administrator command",
	stateReadOnly:      "cannot execute a write in a read-only transaction",
	stateFailed:        "current transaction is aborted, commands ignored until end of transaction block",
	stateLockTimeout:   "canceling statement due to lock timeout",
}

func serverError(state string) *Error {
	message := messages[state]
	if message == "" {
		message = "error of the simulation"
	}
	return &Error{state, message}
}

func errorf(state, format string, args ...any) *Error {
	return &Error{state, fmt.Sprintf(format, args...)}
}

// errReset is the error of a connection that ended during a call: the call may have had its effect.
func errReset() error {
	return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
}

// errRefused is the error of a server that is away.
func errRefused() error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}
