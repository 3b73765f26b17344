// Package wire puts proxies between the parts of the system, for tests: a proxy can cut a connection, make it silent,
// or act at an exact point of the protocol, without a hook in shipped code.
//
// A proxy understands just enough of the traffic to name its events: Redis commands and the store's scripts, AMQP
// methods, gRPC calls, a database's COMMIT. A hook sees each event before the event is passed on. So an act of the
// hook, such as killing a process, happens before the request takes effect or after the effect, according to the
// phase.
package wire

// Phase says which way something goes.
type Phase int

// The phases.
const (
	// Request: from the client; the request has not reached the server yet.
	Request Phase = iota
	// Reply: from the server; the request has taken effect, and the client does not know yet.
	Reply
)

// String names the phase, for descriptions of an effect.
func (p Phase) String() string { return [...]string{"before", "after"}[p] }

// Event is a piece of traffic that is about to be passed on.
type Event struct {
	// Name is a script's name without .lua, such as move, or that of the script that does the same for messages in the
	// indexes; a Redis command in capitals, such as PING; an AMQP method,
	// such as basic.publish, or its number where the method has no name here; a gRPC method, such as Submit; or commit.
	Name  string
	Phase Phase
	// Messages are the messages of the event, as far as the protocol names them: of create, submit and move, of
	// basic.publish and of its ack or nack, and of calls. A reply of claim and submit names the claimed messages.
	Messages []Message
	// Transaction is, of a commit, what the client sent on this connection since the commit before, or its first 64 KiB.
	Transaction []byte

	// script is the script's name as it is; joined says that the event is a part of a call.
	script string
	joined bool
}

// Message is a message of an event.
type Message struct {
	// Key is PRODUCER/ID.
	Key string
	// Word is the halfmsg.Event of a move, by name; the first of several events with the same target. Word is empty in
	// other events.
	Word string
}

// Act is the fate of an event's traffic.
type Act int

// The acts.
const (
	// Pass passes it on.
	Pass Act = iota
	// Cut closes the connection and passes nothing on. A gRPC call ends as UNAVAILABLE.
	Cut
	// Silence passes nothing on, neither this event nor the following traffic of the connection, in both directions, and
	// closes nothing. A gRPC call alone ends with its deadline.
	Silence
	// Drop drops this event alone: as of a server that does not answer and still sends heartbeats. For gRPC, Drop passes
	// the event on.
	Drop
)

// Hook decides about every event. Hooks are called concurrently, and the event waits for the decision.
type Hook func(Event) Act
