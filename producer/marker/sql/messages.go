package sql

// State is where a message stands that its marker's row holds.
type State uint8

// The states of a message in the local message table.
const (
	// StateNone: the row is a marker alone.
	StateNone State = 0
	// StateWaiting: to be sent by a relay.
	StateWaiting State = 1
	// StateHanded: the coordinator has it; sent again until it has let the marker go.
	StateHanded State = 2
	// StateSent: nothing is to be done any more.
	StateSent State = 3
	// StateFailed: refused up to the limit; kept until somebody has it tried again.
	StateFailed State = 4
)
