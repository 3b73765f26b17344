// Package consumertest holds what the consumers of all brokers promise, as one test suite. Each consumer passes the
// suite against a server of its broker.
//
// A test of a consumer provides a Broker: the fixture that starts the server, publishes messages, and runs the
// consumer.
//
//	func TestConsumerPromises(t *testing.T) {
//		consumertest.Run(t, openBroker)
//	}
package consumertest

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/test/servers"
)

// Retries is how often the consumer of a Broker retries a failed message before the message is a dead letter.
const Retries = 2

// PublishedAt is the time of the messages that a Broker publishes, in seconds since 1970.
const PublishedAt = 1_700_000_000

// patience bounds the wait for a state that comes by itself.
const patience = time.Minute

// Broker is the fixture: a server with a queue, a topic or a stream of the test's own. A method that cannot do its work
// fails the test.
type Broker interface {
	// Run runs the consumer "payments" until stop is called, which returns the error of Consumer.Run. Messages that are
	// published afterwards reach the consumer. The consumer retries soon, Retries times.
	Run(o Options, h consumer.HandlerFunc) (stop func() error)
	// Publish publishes messages as the coordinator does. Their ids are given, their producer is shop, their attempt 2,
	// their content type text/plain, their body "body of ID", and they have the header tenant: eu.
	Publish(ids ...string)
	// Origin names the destination of the messages, as a letter does.
	Origin() (queue, exchange, routingKey string)
	// DeadLetters are those of the consumer.
	DeadLetters() *consumer.DeadLetters
	// Bury writes a letter of the producer shop with an id, behind the earlier ones. A replay of the letter arrives
	// somewhere. Headers are added to those that the fixture needs, or replace them. The suite runs no consumer in tests
	// that bury letters.
	Bury(id string, headers map[string]string)
}

// Options are settings that the consumers of all brokers have.
type Options struct {
	// Prefetch is the default for 0.
	Prefetch    int
	Concurrency int
	StopTimeout time.Duration
	Dedup       dedup.Store
	// Observer gets depths at short intervals.
	Observer consumer.Observer
	Logger   *slog.Logger
	Language string
}

// promises are the subtests of Run.
var promises = []struct {
	name string
	keep func(t *testing.T, b Broker)
}{
	{"each message is handled once", handledOnce},
	{"failed messages become dead letters", failedBecomeLetters},
	{"copies are dropped", copiesAreDropped},
	{"transient trouble buries no message", transientTrouble},
	{"depths and dead letters are reported", depthsAreReported},
	{"a stop ends the context of slow handlers", slowHandlers},
	{"a rejection while stopping makes a dead letter", rejectionWhileStopping},
	{"a rejection after the stop settles its message once", rejectionAfterStop},
	{"an error of a handler never ends the process", strangeErrors},
	{"dead letters are replayed after a fix", replayedAfterFix},
	{"the oldest letters change first", oldestFirst},
	{"selected letters change", selectedChange},
	{"a refused replay keeps its letter", refusedReplays},
	{"texts of letters are bounded", boundedTexts},
}

// Run runs the suite as parallel subtests of t, each on a Broker of its own.
func Run(t *testing.T, open func(t *testing.T) Broker) {
	for _, promise := range promises {
		t.Run(promise.name, func(t *testing.T) {
			t.Parallel()
			promise.keep(t, open(t))
		})
	}
	t.Run("fixed texts are in the consumer's language", func(t *testing.T) { fixedTexts(t, open) })
}

// awaitLetters waits for a number of dead letters, and returns them by their ids.
func awaitLetters(t *testing.T, b Broker, count int) map[string]consumer.Letter {
	t.Helper()
	dead := b.DeadLetters()
	servers.Eventually(t, patience, fmt.Sprintf("%d dead letters", count), func() bool {
		n, err := dead.Count(t.Context())
		return err == nil && n == count
	})
	found, err := dead.List(t.Context(), count+1)
	if err != nil || len(found) != count {
		t.Fatalf("%d letters, %v", len(found), err)
	}
	byID := map[string]consumer.Letter{}
	for _, l := range found {
		byID[l.ID] = l
	}
	return byID
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

// stopped stops a consumer, which must return no error.
func stopped(t *testing.T, stop func() error) {
	t.Helper()
	if err := stop(); err != nil {
		t.Errorf("the stop: %v", err)
	}
}
