package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/halfmsg"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/wire"
)

// point is a moment between two effects of a coordinator.
type point struct {
	name  string
	event string
	phase wire.Phase
	// word is the event of the move.
	word string
	// state is the messages' state at that moment, and leased whether there is a lease holder.
	state  pb.State
	leased bool
	// unnamed says that the traffic at the point names no messages: the coordinator only sees that something is due.
	unnamed bool
	// twice says that an unknown copy is out: there will be a second copy.
	twice bool
}

// points are the points of a committed message, in order.
var points = []point{
	{name: "create_before", event: "create", phase: wire.Request},
	{name: "create_after", event: "create", phase: wire.Reply, state: pb.State_STATE_PENDING},
	{name: "submit_before", event: "submit", phase: wire.Request, state: pb.State_STATE_PENDING},
	{name: "submit_after", event: "submit", phase: wire.Reply, state: pb.State_STATE_PENDING, leased: true},
	{name: "claim_before", event: "claim", phase: wire.Request, unnamed: true},
	{name: "claim_after", event: "claim", phase: wire.Reply, state: pb.State_STATE_PENDING, leased: true},
	{name: "confirm_before", event: "Confirm", phase: wire.Request, state: pb.State_STATE_PENDING, leased: true},
	{name: "confirm_after", event: "Confirm", phase: wire.Reply, state: pb.State_STATE_PENDING, leased: true},
	{
		name: "verdict_before", event: "move", phase: wire.Request, word: "committed", state: pb.State_STATE_PENDING,
		leased: true,
	},
	{
		name: "verdict_after", event: "move", phase: wire.Reply, word: "committed", state: pb.State_STATE_SENDABLE,
		leased: true,
	},
	{name: "delete_before", event: "DeleteBusiness", phase: wire.Request, state: pb.State_STATE_SENDABLE, leased: true},
	{name: "delete_after", event: "DeleteBusiness", phase: wire.Reply, state: pb.State_STATE_SENDABLE, leased: true},
	{name: "publish_before", event: "basic.publish", phase: wire.Request, state: pb.State_STATE_SENDABLE, leased: true},
	{
		name: "ack_before", event: "basic.ack", phase: wire.Reply, state: pb.State_STATE_SENDABLE, leased: true,
		twice: true,
	},
	{
		name: "done_before", event: "move", phase: wire.Request, word: "acked", state: pb.State_STATE_SENDABLE,
		leased: true, twice: true,
	},
	{name: "done_after", event: "move", phase: wire.Reply, word: "acked", state: pb.State_STATE_DONE},
}

// pointRows kill at each point.
var pointRows = func() []row {
	rows := []row{
		{
			name: "F02", copies: true, leavesMarkers: true, lasting: true, world: options{wired: true}, fault: killIntake,
			judge: judgeIntake,
		},
		{
			name: "F03", short: true, copies: true, leavesMarkers: true, lasting: true, world: options{wired: true},
			fault: killAt(enoughKills, points...), judge: judgeKills,
		},
	}
	for _, p := range points {
		rows = append(rows, pointRow(p))
	}
	return slices.Concat(rows, refusedRows, markedRows)
}()

// pointRow kills each coordinator at a point.
func pointRow(p point) row {
	return row{
		name: "F03_" + p.name, copies: true, leavesMarkers: true, lasting: true, world: options{wired: true},
		fault: killAt(enoughKills, p), judge: judgeKills,
	}
}

// fewest is how many kills a row of points must have made.
const fewest = 3

// takeoverLimit bounds how long a message of a killed coordinator waits for the next lease holder: the longer lease
// of world.start, one pass of a loop, and 21 s for a machine that is busy with other rows.
const takeoverLimit = 8*time.Second + time.Second + 21*time.Second

// kill is a kill at a point.
type kill struct {
	point     point
	keys      []string // the messages at the point
	held, out int      // of how many the dead coordinator was the owner, and of how many it had sent copies
}

// killer kills each coordinator at a point.
type killer struct {
	w *world

	// mu is held during a kill, so that there is one kill at a time.
	mu     sync.Mutex
	armed  bool
	point  point
	skip   int // how many come to the point and go on before
	struck chan *coordinator
}

// killAt kills coordinators at random points: each time the next coordinator at the point after a random number of
// passes. The coordinator is started again. killAt goes on after its time until there were enough kills, or none for
// long.
func killAt(enough func(w *world) bool, points ...point) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, random *rand.Rand) {
		k := &killer{w: w, struck: make(chan *coordinator, 1)}
		w.on(k.observe)
		for hunting := true; hunting; {
			satisfied := enough(w) // while no process is aimed at
			if satisfied && ctx.Err() != nil {
				break
			}
			k.aim(points[random.IntN(len(points))], random.IntN(10))
			var over <-chan struct{}
			if satisfied {
				over = ctx.Done()
			}
			select {
			case c := <-k.struck:
				k.revive(c)
			case <-over:
				hunting = false
			case <-time.After(patience):
				hunting = false // and the judge will say so
			}
		}
		w.on(nil)
		k.disarm()
		select {
		case c := <-k.struck:
			k.revive(c)
		default:
		}
	}
}

func enoughKills(w *world) bool { return len(w.wiring.kills) >= fewest }

func (k *killer) revive(c *coordinator) {
	k.w.start(c)
	c.Ready(c.http)
}

func (k *killer) aim(at point, skip int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed, k.point, k.skip = true, at, skip
}

func (k *killer) disarm() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed = false
}

// observe kills the coordinator in its turn, while its call or request waits in the proxy.
func (k *killer) observe(c *coordinator, e wire.Event) wire.Act {
	if c == nil || !marked[e.Name] {
		return wire.Pass
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.armed || e.Name != k.point.event || e.Phase != k.point.phase {
		return wire.Pass
	}
	keys := k.there(c, e)
	if len(keys) == 0 && !k.point.unnamed {
		return wire.Pass
	}
	if k.skip--; k.skip >= 0 {
		return wire.Pass
	}
	k.armed = false
	k.kill(c, keys)
	return wire.Cut
}

// marked are the events with points. All others must pass during a kill, for the lookups about the kill to be
// answered.
var marked = func() map[string]bool {
	names := map[string]bool{}
	for _, p := range slices.Concat(points, refusedPoints, markedPoints) {
		names[p.event] = true
	}
	return names
}()

func (k *killer) kill(c *coordinator, keys []string) {
	for _, key := range keys {
		k.w.ledger.Noted(key, "nemesis", fmt.Sprintf("stands at %s when %s is killed", k.point.name, c.grpc))
	}
	_ = k.w.end(c, syscall.SIGKILL) // killed, and exits so
	c.redis.Disconnect()            // no byte that waits in a proxy leaves after its sender's death
	c.amqp.Disconnect()
	held, out := k.w.wiring.bereave(c)
	k.w.wiring.kills = append(k.w.wiring.kills, kill{
		point: k.point, keys: keys, held: held, out: out,
	})
	k.w.ledger.Fault(fmt.Sprintf("kill -9 of %s at %s with %d messages there", c.grpc, k.point.name, len(keys)))
	k.struck <- c
}

// there are the messages of an event that have the state of the point, as another coordinator sees the messages.
func (k *killer) there(c *coordinator, e wire.Event) (keys []string) {
	for _, m := range e.Messages {
		if m.Word != k.point.word {
			continue
		}
		state, leased, err := k.w.look(m.Key, c)
		if err == nil && state == k.point.state && leased == k.point.leased {
			keys = append(keys, m.Key)
		}
	}
	return keys
}

// look asks a coordinator that is not about to die for a message's state.
func (w *world) look(key string, but *coordinator) (state pb.State, leased bool, err error) {
	name, err := halfmsg.ParseName(key)
	if err != nil {
		return 0, false, err
	}
	for _, c := range w.coordinators {
		if c == but {
			continue
		}
		if state, leased, err = c.direct.look(w.t.Context(), name); err == nil {
			return state, leased, nil
		}
	}
	return 0, false, err
}

// judgeKills demands that the kills hit, that the messages of the dead went on in time, and that each further copy
// follows a claim of a message of which a copy was out, or a redelivery by the broker.
func judgeKills(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	var there, held, out, leased int
	for _, k := range w.wiring.kills {
		there, held, out = there+len(k.keys), held+k.held, out+k.out
		if k.point.leased {
			leased++
		}
		for _, key := range k.keys {
			if n := w.ledger.Delivered(key); k.point.twice && n < 2 {
				t.Errorf("%s stood at %s and was delivered %d times\n%s", key, k.point.name, n, w.ledger.History(key))
			}
		}
	}
	taken, longest := w.wiring.takeovers()
	further, again, redelivered := w.ledger.Further(), w.wiring.claimedAgain(), w.ledger.redelivered()
	t.Logf("%d kills, %d messages there, %d held by the dead, %d of them out; %d taken over, the last after %v; "+
		"%d claimed with a copy out, %d copies redelivered, %d further copies",
		len(w.wiring.kills), there, held, out, taken, longest, again, redelivered, further)
	if len(w.wiring.kills) < fewest {
		t.Errorf("%d kills, and %d are wanted", len(w.wiring.kills), fewest)
	}
	if leased > 0 && taken == 0 {
		t.Error("nothing was taken over from the dead")
	}
	if longest > takeoverLimit {
		t.Errorf("a message of a dead owner waited %v for another owner, over %v", longest, takeoverLimit)
	}
	if further > again+redelivered {
		t.Errorf("%d further copies, though only %d messages were claimed with a copy out and %d copies redelivered",
			further, again, redelivered)
	}
}

// killIntake kills coordinators just before and just after a half message is stored, with clients that wait for the
// answer and send nothing twice.
func killIntake(ctx context.Context, w *world, random *rand.Rand) {
	sending, stop := context.WithCancel(w.t.Context())
	defer stop()
	var clients sync.WaitGroup
	for i, c := range w.coordinators {
		d := c.direct
		clients.Go(func() {
			for n := 0; sending.Err() == nil; n++ {
				id := fmt.Sprintf("direct-%d-%06d", i, n)
				w.wiring.answers.note(d.key(id), d.send(w.t.Context(), id))
				pause(sending, 20*time.Millisecond)
			}
		})
	}
	killAt(enoughClients, points[0], points[1])(ctx, w, random)
	stop()
	clients.Wait()
}

// judgeIntake demands that no client at a point got OK, and that other clients did.
func judgeIntake(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	judgeKills(t, w, l, end)
	for _, k := range w.wiring.kills {
		for _, key := range k.keys {
			if code, direct := w.wiring.answers.of(key); direct && code == codes.OK {
				t.Errorf("%s was at %s, and its client was told OK\n%s", key, k.point.name, w.ledger.History(key))
			}
		}
	}
	waiting := w.clientsAt()
	t.Logf("%d calls of waiting clients, killed at %v", len(w.wiring.answers.code), waiting)
	if waiting["create_before"] == 0 || waiting["create_after"] == 0 {
		t.Error("no client waited when a coordinator was killed")
	}
}

// clientsAt counts, by points, the kills of coordinators for which a client waited.
func (w *world) clientsAt() map[string]int {
	waiting := map[string]int{}
	for _, k := range w.wiring.kills {
		for _, key := range k.keys {
			if _, direct := w.wiring.answers.of(key); direct {
				waiting[k.point.name]++
			}
		}
	}
	return waiting
}

func enoughClients(w *world) bool {
	waiting := w.clientsAt()
	return enoughKills(w) && waiting["create_before"] > 0 && waiting["create_after"] > 0
}
