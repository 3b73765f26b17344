package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/test/servers"
)

// Faults of RabbitMQ itself and of the connections to RabbitMQ.
var brokerRows = []row{
	{
		name: "F21_kill", copies: true, lasting: true, world: options{ownBroker: true, consume: consumeClassic},
		fault: killBroker, judge: felt("unsure"),
	},
	{
		name: "F21_close", copies: true, lasting: true, times: 3, world: options{ownBroker: true},
		fault: closeConnections, judge: felt("unsure"),
	},
	{name: "F21_app", copies: true, world: options{ownBroker: true}, fault: stopApplication},
	{
		name: "F21_silent", copies: true, lasting: true, world: options{ownBroker: true, consume: consumeClassic},
		fault: silenceQueue, judge: othersGoOn("unsure"),
	},
}

// felt is a judge that demands an outcome of publishes: without such an outcome the fault hit nothing.
func felt(outcome string) func(*testing.T, *world, *load, End) {
	return func(t *testing.T, w *world, _ *load, _ End) {
		t.Helper()
		n := w.published(outcome)
		if t.Logf("%d publishes ended as %s", n, outcome); n == 0 {
			t.Errorf("no publish ended as %s: the fault hit nothing under way", outcome)
		}
	}
}

// onBroker does something on a channel of its own.
func (w *world) onBroker(do func(*amqp.Channel) error) {
	w.t.Helper()
	conn, err := amqp.Dial(w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := do(channel); err != nil {
		w.t.Fatal(err)
	}
}

// consumeClassic consumes from a classic queue: a quorum queue on a single node of RabbitMQ 3.10 may stay without a
// leader after a kill, and this row is not about leaders.
func consumeClassic(w *world) {
	consume(w, queue, &rabbitmqconsumer.Declare{Exchange: exchange, QueueType: amqp.QueueTypeClassic})
}

// killBroker kills the node with publishes under way: the node stands still for a moment before it dies, and answers
// no publish of that moment.
func killBroker(ctx context.Context, w *world, _ *rand.Rand) {
	// RabbitMQ 3.10 may forget declarations of the moments before a kill. This is no fault of this row.
	w.node.Ctl("eval", "mnesia:dump_log().")
	pause(ctx, time.Second)
	w.ledger.Fault("RabbitMQ stands still")
	w.node.Freeze()
	wait(500 * time.Millisecond)
	w.ledger.Fault("kill -9 of RabbitMQ")
	w.node.Kill()
	w.node.Start()
	w.ledger.Fault("RabbitMQ is back")
	w.allReady()
}

// closeAll is Erlang for RabbitMQ itself: after each pause the channels stand still for a moment, so that publishes
// are under way, and all connections are closed. The management API would learn of the connections too late.
const closeAll = `lists:foreach(fun(Pause) ->
	timer:sleep(Pause),
	Channels = [C || C <- rabbit_channel:list(), (catch erlang:suspend_process(C)) =:= true],
	timer:sleep(100),
	[spawn(rabbit_networking, close_connection, [C, "a fault row"]) || C <- rabbit_networking:connections()],
	timer:sleep(20),
	[catch erlang:resume_process(C) || C <- Channels]
end, [%s]).`

// closeConnections closes all connections at short intervals, which are drawn, for as long as the load lasts.
func closeConnections(ctx context.Context, w *world, random *rand.Rand) {
	for ctx.Err() == nil {
		var pauses []string
		for range 5 {
			pauses = append(pauses, strconv.Itoa(200+random.IntN(1000)))
		}
		list := strings.Join(pauses, ", ")
		w.ledger.Fault("all connections to RabbitMQ are closed, after pauses in ms of " + list)
		w.node.Ctl("eval", fmt.Sprintf(closeAll, list))
	}
	w.allReady()
}

// stopApplication stops RabbitMQ within its node, as an operator does for maintenance, and starts RabbitMQ again.
func stopApplication(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("rabbitmqctl stop_app")
	w.node.Ctl("stop_app")
	w.degraded("not connected")
	wait(2 * time.Second)
	w.node.Ctl("start_app")
	w.ledger.Fault("rabbitmqctl start_app has come back")
	w.allReady()
}

// silenceQueue stops the process of the load's queue for several confirm timeouts: the queue takes messages and
// confirms none. A neighbour's messages go on meanwhile.
func silenceQueue(ctx context.Context, w *world, random *rand.Rand) {
	tell := func(how string) {
		w.node.Ctl("eval", fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)),
			sys:%s(amqqueue:get_pid(Q)).`, w.broker.Name, queue, how))
	}
	pause(ctx, time.Second)
	w.ledger.Fault("the queue stops confirming")
	tell("suspend")
	withNeighbour(func(context.Context, *world, *rand.Rand) { wait(12 * time.Second) })(ctx, w, random)
	// The messages of the queue then come all at once, and take the consumers' time.
	servers.Eventually(w.t, patience, "the neighbour's messages are delivered", func() bool {
		return w.ledger.UndeliveredOf(neighbours+"/") == 0
	})
	tell("resume")
	w.ledger.Fault("the queue confirms again")
}
