package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// streamBroker is the name of the other broker in the coordinators' configuration.
const streamBroker = "stream"

// isDegraded is what a coordinator's page says while the other broker cannot be used: the coordinator stays ready.
const isDegraded = `"degraded": true`

// stream is a broker of another kind, to which the load's messages go instead of RabbitMQ.
type stream interface {
	// url is the broker's in the configuration of the coordinators.
	url() string
	// asciiHeaders says that the broker carries only names of visible ASCII, and values of one line.
	asciiHeaders() bool
	// consume starts consumers until the test ends. They note every copy, and let each message have its effect once.
	consume(w *world)
	// watch prepares for consumers in processes of their own, and says whether it notes the copies in their place.
	watch(w *world) (noting bool)
	// forget is the broker's end of a consumer that died.
	forget(w *world, consumer string)
	// empty waits until the consumers have had everything that the broker holds.
	empty(w *world)
}

// Faults of NATS JetStream, the load's broker.
var natsRows = []row{
	{name: "F00_nats", world: onNATS(1), fault: nothing},
	{
		name: "F21_nats_kill", short: true, copies: true, lasting: true, world: onNATS(1), fault: killNATS,
		judge: felt("unsure"),
	},
	{
		name: "F21_nats_silent", copies: true, lasting: true, world: onNATS(1), fault: freezeNATS, judge: felt("unsure"),
	},
	{name: "F21_nats_leader", copies: true, lasting: true, world: onNATS(3), fault: killLeaders},
	{name: "F21_nats_close", copies: true, lasting: true, world: onNATS(1), fault: closeNATS},
	{name: "F21_nats_app", copies: true, world: onNATS(1), fault: stopJetStream},
	{
		name: "F22_nats_permission", copies: true, world: onNATSAccount(), fault: forbidNATS, judge: felt("refused"),
	},
	{name: "F22_nats_subject", copies: true, world: onNATS(1), fault: withdrawSubjects, judge: felt("refused")},
	{
		name: "F27_nats", copies: true, parks: true, world: buryingStrays(onNATS(1)), fault: sendAstray,
		judge: deadAndRetried,
	},
	{name: "F29_nats", copies: true, world: onNATS(1), fault: fillStream, judge: felt("refused")},
	{name: "F30_nats", copies: true, world: killingConsumers(onNATS(1)), fault: nothing, judge: diedOnBothSides},
	{
		name: "F31_nats", copies: true, world: impatient(onNATSAccount()), fault: withoutRoomOnNATS,
		judge: felt("unsent"),
	},
	{name: "F32_nats", copies: true, lasting: true, world: onNATS(1), fault: silenceNATS, judge: felt("unsure")},
}

// Faults of Kafka, the load's broker. kfake stands for Kafka: see package fakekafka.
var kafkaRows = []row{
	{name: "F00_kafka", world: onKafka(), fault: nothing},
	{
		name: "F21_kafka_kill", short: true, copies: true, lasting: true, world: onKafka(), fault: killKafka,
		judge: felt("unsure"),
	},
	{
		name: "F21_kafka_silent", copies: true, lasting: true, world: onKafka(), fault: hangKafka, judge: felt("unsure"),
	},
	{name: "F21_kafka_leader", unanswered: true, lasting: true, world: onKafka(), fault: moveLeaders},
	{name: "F21_kafka_close", copies: true, lasting: true, world: onKafka(), fault: cutKafka},
	{name: "F22_kafka_permission", copies: true, world: onKafka(), fault: forbidKafka, judge: felt("refused")},
	{name: "F22_kafka_size", copies: true, world: onKafka(), fault: shrinkKafka, judge: felt("refused")},
	{
		name: "F27_kafka", copies: true, parks: true, world: buryingStrays(onKafka()), fault: sendAstray,
		judge: deadAndRetried,
	},
	{name: "F30_kafka", copies: true, world: killingConsumers(onKafka()), fault: nothing, judge: diedOnBothSides},
	{
		name: "F31_kafka", copies: true, world: impatient(onKafka()), fault: withoutRoomOnKafka, judge: felt("unsent"),
	},
	{name: "F32_kafka", copies: true, lasting: true, world: onKafka(), fault: silenceKafka, judge: felt("unsure")},
}

// buryingStrays gives the other broker a dead-letter exchange, and makes a message DEAD soon.
func buryingStrays(o options) options {
	o.settings = []string{twoRetries, leaseOfCopies, "MSGHANDLER_BROKERS_STREAM_DEAD_LETTER_EXCHANGE=" + deadLetters}
	return o
}

// killingConsumers makes the consumers processes that die, with the SQL inbox.
func killingConsumers(o options) options {
	o.consume = consumeInProcesses(withSQL)
	return o
}

// impatient makes a message DEAD soon, so that a used attempt shows.
func impatient(o options) options {
	o.settings = []string{twoRetries}
	return o
}

// destination is where the load's messages go.
type destination struct {
	// broker is the broker's name in the configuration of the coordinators; empty: RabbitMQ.
	broker string
	// ascii says that the broker carries only simple headers.
	ascii bool
}

func (w *world) destination() destination {
	if w.stream == nil {
		return destination{}
	}
	return destination{streamBroker, w.stream.asciiHeaders()}
}

// noting notes every copy before its effect, unless the copy is a last message.
func (w *world) noting(effect consumer.Handler) consumer.Handler {
	return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		content := NewContent(m.Exchange, m.RoutingKey, m.Headers, m.Body)
		w.got(m.Key(), Copy{Content: content, Attempt: m.Attempt, Redelivered: m.Redelivered})
		if isLast(m.Key()) {
			return nil
		}
		return effect.Handle(ctx, m)
	})
}

// runs runs consumers until they are stopped or the test ends, and returns when each has begun to consume.
func (w *world) runs(
	consumers int, open func(consuming func()) (run func(context.Context) error, err error),
) (stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	for range consumers {
		ready := make(chan struct{})
		var once sync.Once
		run, err := open(func() { once.Do(func() { close(ready) }) })
		w.must(err)
		running.Go(func() { _ = run(ctx) })
		select {
		case <-ready:
		case <-time.After(patience):
			w.t.Fatal("the consumer does not consume")
		}
	}
	return stop
}

// silent has the other broker answer nothing, for longer than a publish waits for its answer.
func (w *world) silent(ctx context.Context, stop func() (resume func())) {
	w.t.Helper()
	pause(ctx, time.Second)
	w.ledger.Fault("the broker answers nothing")
	resume := stop()
	wait(8 * time.Second)
	resume()
	w.ledger.Fault("the broker answers again")
	w.allReady()
}

// refusing has the other broker refuse messages for a while.
func (w *world) refusing(ctx context.Context, begin, end func()) {
	w.t.Helper()
	pause(ctx, time.Second)
	w.ledger.Fault("the broker refuses messages")
	begin()
	servers.Eventually(w.t, patience, "a message is refused", func() bool { return w.published("refused") > 0 })
	wait(2 * time.Second)
	end()
	w.ledger.Fault("the broker takes all messages again")
}

// withoutRoom lets the other broker have no room until the load has ended and for a while longer, with a coordinator
// stopped meanwhile. A message that used up attempts is DEAD then.
func (w *world) withoutRoom(ctx context.Context, begin, end func()) {
	w.t.Helper()
	pause(ctx, time.Second)
	w.ledger.Fault("the broker has no room")
	begin()
	stopped := w.coordinators[len(w.coordinators)-1]
	w.stopInTime(stopped)
	<-ctx.Done()
	w.fatesKnown()
	wait(answered)
	end()
	w.ledger.Fault("the broker has room again")
	w.start(stopped)
	w.allReady()
}

// messagesGoOn waits until the coordinators have published so many more messages.
func (w *world) messagesGoOn(n int) {
	w.t.Helper()
	before := w.published("acked")
	servers.Eventually(w.t, patience, fmt.Sprintf("%d more messages are published", n), func() bool {
		return w.published("acked") >= before+n
	})
}
