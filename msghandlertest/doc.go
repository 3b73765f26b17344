// Package msghandlertest is for the tests of services that use msghandler: a coordinator in the test's own process,
// ready within a second, without Redis, RabbitMQ or Docker.
//
//	func TestPaidOrderIsAnnounced(t *testing.T) {
//		c := msghandlertest.Start(t)
//		p := c.Producer(t, producer.Config{Name: "orders"}) // or your own, with Coordinator: c.Addr()
//		pay(t.Context(), p, "1001")
//		m := c.Wait(t, msghandlertest.ByID("1001"))
//		...
//	}
//
// The coordinator is the shipped one: its code, its states, its checks. Only its servers are embedded, and nothing is
// durable. Its broker takes every message, also for exchanges and queues that do not exist. Consumers may connect to it
// ([Coordinator.BrokerURL]) and declare what they need.
//
// # What was published, and what was not
//
// [Coordinator.Wait] waits for a message, and [Coordinator.Published] lists all. A message is published some time after
// the call of the producer, so an empty list alone proves nothing. [Coordinator.WaitIdle] waits until the fate of every
// message is decided: published, rolled back, or given up. [Coordinator.AssertNothingPublished] does the same first.
//
// # Failures on demand
//
// [Coordinator.Inject] takes a [Fault]: a call that is refused, whose answer is lost, or which the coordinator never
// sees; a message that the broker refuses, returns or takes twice. [Coordinator.Disconnect] and
// [Coordinator.DisconnectBroker] cut all connections. [Coordinator.Kill] ends the coordinator as a power cut does, and
// [Coordinator.Restart] starts another one on the same state.
//
// # Time
//
// The coordinator asks a silent producer after 250 ms, not after 6 s, and repeats what failed sooner than by default;
// [WithConfig] changes it. [Coordinator.Retry] asks at once. [Coordinator.Advance] puts the coordinator's clock
// forward, so that a message with a delay of an hour is due.
//
// # In go.mod
//
// The package needs the whole coordinator, which is the root module: its requirements enter the go.mod of your tests.
// The programs that you build link none of it. A service whose go.mod must stay small keeps such tests in a module of
// its own, such as test/go.mod.
package msghandlertest
