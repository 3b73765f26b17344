// Package wire puts proxies between the parts of the system, for tests: one can cut a connection, let it go silent, or act
// at an exact point of the protocol, without a hook in anything that is shipped.
//
// A proxy understands just enough of what passes to name it: Redis commands and the store's scripts, AMQP methods, gRPC
// calls, a database's COMMIT. A hook sees each of them before it is passed on, so what it does then, such as killing a
// process, happens before the request takes effect or after it has, as its phase says.
package wire

// Phase says which way something goes.
type Phase int

// The phases.
const (
	// Request: from the one that connected; it has not reached the server yet.
	Request Phase = iota
	// Reply: from the server; what it answers to has taken effect, and the one that asked does not know.
	Reply
)

// String names the phase as people say it of an effect.
func (p Phase) String() string { return [...]string{"before", "after"}[p] }

// Event is one thing that is about to be passed on.
type Event struct {
	// Name is a script's name without .lua, such as move; a Redis command in capitals, such as PING; an AMQP method, such
	// as basic.publish, or its number where it has no name here; a gRPC method, such as Submit; or commit.
	Name  string
	Phase Phase
	// Messages are those it is about, as far as the protocol tells: of create, submit and move, of basic.publish and of
	// its ack or nack, and of calls. Of claim and submit a reply tells those that were claimed.
	Messages []Message
}

// Message is one that an event is about.
type Message struct {
	// Key is PRODUCER/ID.
	Key string
	// Word is the halfmsg.Event that a move brings about, by name; of those that lead the same way the first. It is empty
	// in other events.
	Word string
}

// Act is what becomes of what an event tells of.
type Act int

// The acts.
const (
	// Pass passes it on.
	Pass Act = iota
	// Cut closes the connection and passes nothing on. A gRPC call ends as UNAVAILABLE.
	Cut
	// Silence passes nothing on, neither this nor what follows on the connection, in both directions, and closes nothing.
	// A gRPC call alone ends with its deadline.
	Silence
	// Drop passes nothing on of this, and goes on: as of a server that does not answer and still sends heartbeats. Not for
	// gRPC, where it passes.
	Drop
)

// Hook decides about every event. It is called concurrently, and what it looks at waits for it.
type Hook func(Event) Act
