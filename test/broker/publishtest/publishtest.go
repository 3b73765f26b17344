// Package publishtest holds what every broker promises as one test suite. Each implementation of publish.publish.Client
// passes the suite against a real server of its kind.
//
// A test of the implementation provides a Broker: the fixture that starts the server, breaks it, and reads what the
// server has stored. The suite publishes only through the publisher under test and never speaks a broker's protocol.
//
//	func TestPromises(t *testing.T) {
//		publishtest.Run(t, startBroker(t))
//	}
//
// docs/reference/brokers.md lists the promises in words and says how each broker keeps them.
package publishtest

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Broker is the fixture: a server of the test's own, its administrator, and its consumers. The suite calls the methods
// one after the other; publishers work meanwhile. A method that cannot do its work fails t.
type Broker interface {
	// Open starts a publisher with the confirm timeout, and does not wait for a connection. The suite closes the
	// publisher.
	Open(t *testing.T, confirmTimeout time.Duration) publish.Client
	// Target makes a target of this name that durably stores each message.
	Target(t *testing.T, name string) Target
	// DeadLetters makes the target for copies of dead messages of origin. The coordinator replaces the exchange of such a
	// copy and keeps the routing key, so the target accepts the keys of origin.
	DeadLetters(t *testing.T, origin Target) Target
	// Refusals are the ways in which this server refuses a message among good messages to target. One of them is a
	// target that does not exist. Others are a message without a route, a message that is too large, and a publisher
	// without the permission, where the server has such a refusal.
	Refusals(t *testing.T, target Target) []Refusal
	// Read returns the records that the target has got since the last Read of it, in the server's order for each
	// routing key. Read returns nil when there are none yet. The suite also calls Read in subtests of the test that made
	// the target.
	Read(t *testing.T, target Target) []Record
	// Remove deletes a target with its messages. The returned function makes the target again, empty, under its name.
	Remove(t *testing.T, target Target) (makeAgain func())
	Faults
}

// Faults are the ways to break the server. Every fault but Kill returns a function that ends the fault. The suite
// calls the function once, before the next fault.
type Faults interface {
	// Block makes the server refuse to take messages for a reason of its own, such as an alarm, a full store or too few
	// replicas. The server is up, and answers.
	Block(t *testing.T) (unblock func())
	// Hang lets all connections stand and nothing pass, in both directions, as a frozen process or a broken network does.
	// What was sent meanwhile passes afterwards.
	Hang(t *testing.T) (resume func())
	// Cut closes all connections and lets no new ones in.
	Cut(t *testing.T) (restore func())
	// Kill ends the server without a farewell, also while the server hangs. Restart starts the server with its
	// addresses and its data and returns when the server serves. Restart also ends Hang.
	Kill(t *testing.T)
	Restart(t *testing.T)
}

// Target is where messages are published to.
type Target struct {
	// Exchange is the broker's exchange, topic or stream.
	Exchange string
	// Keys are at least three routing keys that lead into the target. The server keeps the order of messages with the
	// same key.
	Keys []string
}

// Refusal is a message that the server refuses.
type Refusal struct {
	// Name says what is wrong, such as "unknown topic".
	Name string
	// Spoil changes a good message to the target into the refused message.
	Spoil func(m *publish.Message)
	// Publisher publishes the good messages and the refused message. If nil, the suite opens a publisher. Otherwise the
	// fixture closes the publisher.
	Publisher publish.Client
}

// Record is what a consumer finds of a message.
type Record struct {
	// Name, Exchange, RoutingKey, ContentType and Body are those of the message.
	Name                 publish.Name
	Exchange, RoutingKey string
	ContentType          string
	Body                 []byte
	// Timestamp is publish.Message.DueAt, at least in whole seconds.
	Timestamp time.Time
	// Attempt is the number of the copy.
	Attempt int
	// Headers are publish.Message.Headers and the trace context. Headers of the broker are left out, and so are the
	// headers in which a broker carries the fields above.
	Headers map[string]string
}

const (
	// confirmTimeout is the timeout of most publishers in the suite, longer than any fault in their tests.
	confirmTimeout = 20 * time.Second
	// shortTimeout is for tests that wait until the confirm timeout has passed.
	shortTimeout = 2 * time.Second
	// slack is how much longer than promised a call may take on a busy machine.
	slack = 3 * time.Second
	// patience bounds the wait for a state that comes by itself.
	patience = time.Minute
)

// promises are the subtests of Run, in their order: the faults come last.
var promises = []struct {
	name string
	keep func(*suite)
}{
	{"content and headers arrive", contentArrives},
	{"the trace context travels in the headers", traceTravels},
	{"the copy number travels in the headers", attemptTravels},
	{"without faults each message arrives once", arrivesOnce},
	{"the order within a key is kept", orderWithinKey},
	{"the dead-letter target gets a copy", deadLetterTarget},
	{"a copy on purpose arrives", copyOnPurpose},
	{"a refused message fails alone", refusedAlone},
	{"a target that is made again takes messages", madeAgain},
	{"an ended context sends nothing", endedContext},
	{"a closed publisher sends nothing", closedPublisher},
	{"a broker away from the start costs no attempt", awayFromTheStart},
	{"a blocked broker costs no attempt", blockedBroker},
	{"lost connections come back", lostConnections},
	{"a hanging broker delays no caller", hangingBroker},
	{"a deadline ends the wait for answers", deadlineEndsWait},
	{"in flight at a kill is unsure", killedBroker},
	{"acknowledged messages survive a kill", acknowledgedSurvive},
}

// Run runs the suite as subtests of t. They break the server one after the other, so no other test may use the server.
func Run(t *testing.T, broker Broker) {
	for i, promise := range promises {
		t.Run(promise.name, func(t *testing.T) {
			promise.keep(&suite{T: t, Broker: broker, number: i})
		})
	}
}
