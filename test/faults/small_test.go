package faults

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// Faults that hit single messages at a fixed moment: each row hits its one gap every time. TestDefects shows for each
// row that the row catches a coordinator with the defect.
var smallRows = []row{
	{name: "F01_memory", alone: true, world: options{settings: oneQuestion}, fault: forgetfulProducer(true)},
	{name: "F03_deleting", alone: true, world: options{settings: quick}, fault: diesDeleting},
	{name: "F03_unheard", alone: true, copies: true, world: options{settings: quick, wired: true}, fault: diesBeforeAck},
	{name: "F08_early", alone: true, fault: submitsAndRollsBack},
	{name: "F08_late", alone: true, fault: rollsBackTooLate},
	{name: "F09_late", alone: true, world: options{settings: oneQuestion}, fault: commitsTooLate},
	{name: "F10_both", alone: true, fault: saysBoth},
	{
		name: "F16_write", alone: true, copies: true, world: options{settings: quick, wired: true}, fault: writesTooLate,
		judge: wasRefused,
	},
	{name: "F20_other", alone: true, short: true, fault: sendsOther},
	{name: "F22_returned", alone: true, short: true, fault: isReturned},
	{name: "F29_full", alone: true, copies: true, short: true, fault: findsQueueFull},
}

var (
	// oneQuestion is followed by the last Confirm call.
	oneQuestion = []string{"MSGHANDLER_CONFIRM_ATTEMPTS=1"}
	// quick ends leases soon, which needs short timeouts.
	quick = append([]string{
		"MSGHANDLER_CONFIRM_TIMEOUT=500ms", "MSGHANDLER_CONFIRM_LEASE=2100ms", "MSGHANDLER_SEND_CONFIRM_TIMEOUT=1s",
		"MSGHANDLER_SEND_LEASE=6s",
	}, oneQuestion...)
)

// until waits for an event that happens with any coordinator, right or wrong.
func (w *world) until(what string, cond func() bool) {
	w.t.Helper()
	servers.Eventually(w.t, patience, what, cond)
}

// tried counts the coordinators' publishes with every outcome.
func (w *world) tried() (n int) {
	for _, c := range w.coordinators {
		n += w.countedBy(c, "msghandler_publishes_total{")
	}
	return n
}

// channel is one to the broker, until the test ends.
func (w *world) channel() *amqp.Channel {
	w.t.Helper()
	conn, err := amqp.Dial(w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	return channel
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// forgetfulProducer commits and ends before its Submit is out; the markers in its memory are lost. The message is
// saved only if its successor looks at the business data.
func forgetfulProducer(looks bool) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		w.must(err)
		way := wire.TCP(w.t, w.coordinators[0].grpc)
		sdk, stop := serveMemory(w, listener, way.Addr, looks)
		m := producer.Message{
			ID: "1", Exchange: exchange, RoutingKey: peerName, Headers: headersOf("1"),
			Body: []byte("paid"),
		}
		w.ledger.Sending(key("1"), NewContent(exchange, peerName, m.Headers, m.Body))
		w.must(sdk.Send(ctx, m, func(context.Context) error {
			w.ledger.Accepted(key("1"))
			way.Hold()
			w.ledger.Decide(key("1"), Committed)
			return nil
		}))
		w.ledger.Fault("the producer ends before its Submit is out")
		stop()
		listener, err = net.Listen("tcp", listener.Addr().String())
		w.must(err)
		_, stop = serveMemory(w, listener, w.targets(), looks)
		w.t.Cleanup(stop)
		w.until("the message is confirmed", func() bool {
			pending, ok := w.standing(pb.State_STATE_PENDING)
			return ok && len(pending) == 0
		})
	}
}

// serveMemory runs a producer with the SDK and markers in memory until stop is called, which waits for nothing.
func serveMemory(
	w *world, listener net.Listener, coordinator string, looks bool,
) (sdk *producer.Producer, stop func()) {
	w.t.Helper()
	config := producer.Config{
		Name: peerName, Coordinator: coordinator, CallbackTarget: listener.Addr().String(), Markers: memory.New(),
		Logger: quiet(), Coordinators: producer.Coordinators{Anyone: true},
	}
	if looks {
		config.Resolve = func(_ context.Context, id string, _ bool) (marker.Verdict, error) {
			if w.ledger.Fate(key(id)) == Committed {
				return marker.Committed, nil
			}
			return marker.Unknown, nil
		}
	}
	sdk, err := producer.New(config)
	w.must(err)
	server := grpc.NewServer()
	sdk.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	return sdk, func() {
		at, cancel := context.WithCancel(context.Background())
		cancel()
		_ = sdk.Close(at)
		server.Stop()
		serving.Wait()
	}
}

// diesDeleting: the owner is killed as soon as the producer has dropped the marker. The verdict must be stored by
// then, because the producer has forgotten the business.
func diesDeleting(ctx context.Context, w *world, _ *rand.Rand) {
	p, owner := newPeer(w), w.coordinators[0]
	var dropped atomic.Bool
	p.answers = func(id string, final bool) []Fate {
		switch {
		case !dropped.Load():
			return []Fate{w.ledger.Fate(key(id))}
		case final:
			return []Fate{RolledBack} // no row, so a tombstone
		}
		return []Fate{Undecided}
	}
	var once sync.Once
	killed := make(chan struct{})
	p.forgets = func(string) {
		dropped.Store(true)
		once.Do(func() {
			w.ledger.Fault("kill -9 of the owner")
			_ = w.end(owner, syscall.SIGKILL) // killed, and exits so
			close(killed)
		})
	}
	p.send(ctx, "1", "paid")
	p.commit(ctx, "1")
	w.restartAfter(killed, owner)
}

func (w *world) restartAfter(killed <-chan struct{}, c *coordinator) {
	w.t.Helper()
	select {
	case <-killed:
	case <-time.After(patience):
		w.t.Fatalf("no coordinator was to drop a marker\n%s", w.tails())
	}
	w.start(c)
	c.Ready(c.http)
}

// diesBeforeAck: the owner is killed when a copy is out, before the acknowledgement arrives.
func diesBeforeAck(ctx context.Context, w *world, _ *rand.Rand) {
	p, owner := newPeer(w), w.coordinators[0]
	copies := func(n int) func() bool {
		return func() bool { _, _, copies := w.ledger.Totals(); return copies >= n }
	}
	p.send(ctx, "0", "paid")
	p.commit(ctx, "0")
	w.until("the way to the queue is known", copies(1))
	p.send(ctx, "1", "paid")
	received := make(chan struct{})
	w.on(func(_ *coordinator, e wire.Event) wire.Act {
		if e.Name == "basic.ack" && len(e.Messages) > 0 {
			<-received
		}
		return wire.Pass
	})
	p.commit(ctx, "1")
	w.until("a copy is out", copies(2))
	w.ledger.Fault("kill -9 of the owner, which has not got the acknowledgement of its copy")
	_ = w.end(owner, syscall.SIGKILL) // killed, and exits so
	close(received)
	w.start(owner)
	owner.Ready(owner.http)
}

// submitsAndRollsBack: a Submit is no verdict.
func submitsAndRollsBack(ctx context.Context, w *world, _ *rand.Rand) {
	p := newPeer(w)
	p.send(ctx, "0", "paid")
	p.commit(ctx, "0")
	p.send(ctx, "1", "paid")
	p.submit(ctx, "1")
	w.until("the Submit is taken up", func() bool { return p.times("1") > 0 || w.tried() > 1 })
	w.ledger.Decide(key("1"), RolledBack)
}

// rollsBackTooLate: the verdict stands, and the first one counts.
func rollsBackTooLate(ctx context.Context, w *world, _ *rand.Rand) {
	w.unroutable(ctx, func(p *peer) {
		_, err := p.api.Rollback(ctx, &pb.RollbackRequest{Producer: peerName, Id: "1"})
		w.ledger.Noted(key("1"), "producer", "says by mistake that it has rolled back, and hears: "+status.Code(err).String())
	})
}

// isReturned: the broker returns the message, and acknowledges the message then.
func isReturned(ctx context.Context, w *world, _ *rand.Rand) { w.unroutable(ctx, func(*peer) {}) }

// unroutable lets something happen while the broker finds no queue for a committed message.
func (w *world) unroutable(ctx context.Context, meanwhile func(*peer)) {
	w.t.Helper()
	p, channel := newPeer(w), w.channel()
	w.must(channel.QueueUnbind(queue, "#", exchange, nil))
	w.ledger.Fault("the queue is unbound")
	p.send(ctx, "1", "paid")
	p.commit(ctx, "1")
	w.until("the broker has returned it", func() bool { return w.tried() > 0 })
	meanwhile(p)
	w.must(channel.QueueBind(queue, "#", exchange, false, nil))
	w.ledger.Fault("the queue is bound again")
}

// commitsTooLate: the business ends after the last Confirm call, which had no answer.
func commitsTooLate(ctx context.Context, w *world, _ *rand.Rand) {
	p := newPeer(w)
	p.answers = func(id string, _ bool) []Fate {
		fate := w.ledger.Fate(key(id))
		if fate == Undecided && id == "unsaid" {
			return nil
		}
		return []Fate{fate}
	}
	for _, id := range []string{"unknown", "unsaid"} {
		p.send(ctx, id, "paid")
	}
	w.until("no coordinator asks any more", func() bool {
		pending, ok := w.standing(pb.State_STATE_PENDING)
		return ok && len(pending) == 0
	})
	w.ledger.Fault("the limit is passed")
	for _, id := range []string{"unknown", "unsaid"} {
		p.commit(ctx, id)
	}
}

// saysBoth: an answer with both verdicts has said nothing.
func saysBoth(ctx context.Context, w *world, _ *rand.Rand) {
	p := newPeer(w)
	lies := map[string][]Fate{"commits": {Committed, RolledBack}, "rolls-back": {RolledBack, Committed}}
	p.answers = func(id string, _ bool) []Fate {
		if fate := w.ledger.Fate(key(id)); fate != Undecided {
			return []Fate{fate}
		}
		return lies[id]
	}
	for id := range lies {
		p.send(ctx, id, "paid")
		p.submit(ctx, id)
	}
	w.until("both were asked about", func() bool { return p.times("commits") > 0 && p.times("rolls-back") > 0 })
	w.ledger.Decide(key("commits"), Committed)
	w.ledger.Decide(key("rolls-back"), RolledBack)
}

// writesTooLate: an owner's verdict comes to the store when its lease has ended and another asks already. A full queue
// keeps the message on its way meanwhile, and has a copy of each attempt come out.
func writesTooLate(ctx context.Context, w *world, _ *rand.Rand) {
	p, restore := newPeer(w), w.fillQueue()
	p.answers = func(id string, _ bool) []Fate {
		switch p.times(id) {
		case 1:
			w.ledger.Fault("the first owner's way to Redis is shut")
			w.coordinators[0].redis.Hold()
		case 2:
			w.coordinators[0].redis.Restore()
			w.ledger.Fault("the first owner's way to Redis is open again")
			soon := time.Now().Add(300 * time.Millisecond) // less than a caller waits that asks now
			for w.countedBy(w.coordinators[0], committedMoves) == 0 && time.Now().Before(soon) {
				wait(10 * time.Millisecond)
			}
		}
		return []Fate{w.ledger.Fate(key(id))}
	}
	p.send(ctx, "1", "paid")
	p.commit(ctx, "1")
	w.until("it is published by all who believe they may", func() bool { return w.tried() > 2 })
	restore()
}

const committedMoves = `msghandler_moves_total{event="committed",`

// wasRefused demands that the late write came, and was refused.
func wasRefused(t *testing.T, w *world, _ *load, _ End) {
	if w.countedBy(w.coordinators[0], committedMoves+`fate="lease_lost"}`) != 1 {
		t.Error("no word of a lost lease was refused: the row proves nothing")
	}
}

// sendsOther: other content under a taken id changes nothing.
func sendsOther(ctx context.Context, w *world, _ *rand.Rand) {
	p := newPeer(w)
	p.send(ctx, "1", "paid")
	_, err := p.api.SendHalfMessage(ctx, p.half("1", "cancelled"))
	w.ledger.Noted(key("1"), "producer", "sends other content, and hears: "+status.Code(err).String())
	p.commit(ctx, "1")
}

// findsQueueFull: one of two queues takes the message and the other does not, so the broker refuses the publish.
func findsQueueFull(ctx context.Context, w *world, _ *rand.Rand) {
	p, restore := newPeer(w), w.fillQueue()
	p.send(ctx, "1", "paid")
	p.commit(ctx, "1")
	w.until("it is published again", func() bool { return w.tried() > 1 })
	restore()
}

// fillQueue adds a queue that has no room, until restore is called.
func (w *world) fillQueue() (restore func()) {
	w.t.Helper()
	const full = "faults.full"
	channel := w.channel()
	_, err := channel.QueueDeclare(full, true, false, false, false,
		amqp.Table{"x-max-length": int64(0), "x-overflow": "reject-publish"})
	w.must(err)
	w.must(channel.QueueBind(full, "#", exchange, false, nil))
	w.ledger.Fault("another queue has no room")
	return func() {
		_, err := channel.QueueDelete(full, false, false, false)
		w.must(err)
		w.ledger.Fault("the other queue is gone")
	}
}
