package faults

import (
	"maps"
	"sync"
	"time"

	"github.com/msghandler/msghandler/test/wire"
)

// ways are the proxied connections of a coordinator.
type ways struct {
	redis, amqp *wire.Proxy // where the world is wired
	calls       *wire.Calls // the proxy in front of the coordinator
	direct      *direct
}

// address is where producers reach the coordinator.
func (c *coordinator) address() string {
	if c.calls != nil {
		return c.calls.Addr
	}
	return c.grpc
}

// wiring holds the proxies of a world and their observations.
type wiring struct {
	custody
	kills      []kill
	answers    answers
	losses     losses
	unanswered unansweredSends
	// meanwhile is the number of copies that came while a coordinator was cut off.
	meanwhile int

	mu        sync.Mutex
	hook      hook
	callbacks map[string]string // where coordinators reach a producer, by its name
}

// hook decides about traffic of a coordinator. The coordinator of a callback is the last one to claim the first
// message of the call, or nil where no claim was seen.
type hook func(c *coordinator, e wire.Event) wire.Act

// wire makes the ways of a coordinator, as far as the world has them.
func (w *world) wire(c *coordinator) {
	w.t.Helper()
	observe := func(e wire.Event) wire.Act { return w.observe(c, e) }
	if w.options.wired {
		redis, amqp := w.addresses()
		c.redis, c.amqp = wire.Redis(w.t, wire.Host(w.t, redis)), wire.RabbitMQ(w.t, wire.Host(w.t, amqp))
		c.redis.On(observe)
		c.amqp.On(observe)
	}
	if w.options.relayed {
		c.calls = wire.GRPC(w.t, c.grpc)
		c.calls.On(observe)
	}
	c.direct = newDirect(w, c.address(), "kept")
}

// callback is the coordinators' address of a producer that serves at addr.
func (w *world) callback(producer, addr string) string {
	w.t.Helper()
	if w.options.wired || w.options.relayed {
		calls := wire.GRPC(w.t, addr)
		calls.On(func(e wire.Event) wire.Act {
			if len(e.Messages) == 0 {
				return wire.Pass
			}
			return w.observe(w.wiring.caller(e.Messages[0].Key), e)
		})
		addr = calls.Addr
	}
	w.wiring.mu.Lock()
	defer w.wiring.mu.Unlock()
	if w.wiring.callbacks == nil {
		w.wiring.callbacks = map[string]string{}
	}
	w.wiring.callbacks[producer] = addr
	return addr
}

func (g *wiring) callbackOf(producer string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.callbacks[producer]
}

// observe takes note of the traffic and asks the row's hook.
func (w *world) observe(c *coordinator, e wire.Event) wire.Act {
	w.wiring.note(c, e)
	w.wiring.mu.Lock()
	decide := w.wiring.hook
	w.wiring.mu.Unlock()
	if decide == nil {
		return wire.Pass
	}
	return decide(c, e)
}

// on has a hook decide from now on.
func (w *world) on(decide hook) {
	w.wiring.mu.Lock()
	defer w.wiring.mu.Unlock()
	w.wiring.hook = decide
}

// custody records the lease holders, as the proxies saw their traffic.
type custody struct {
	guard  sync.Mutex
	owners map[string]*coordinator // the last claimant of a message that has not settled the message
	last   map[string]*coordinator // the last claimant of a message that is alive, settled or not
	out    map[string]*coordinator // the last publisher of a message that has not stored the acknowledgement
	// sent are messages of which a copy has left and no acknowledgement is stored. again counts the claims of such
	// messages: after a kill, an answer that did not come in time, or the end of a lease. Each explains a further copy.
	sent  map[string]bool
	again int
	// orphans are messages whose owner is gone, and since when; taken is how long they waited for another.
	orphans map[string]time.Time
	taken   []time.Duration
}

func (b *custody) note(c *coordinator, e wire.Event) {
	b.guard.Lock()
	defer b.guard.Unlock()
	if b.owners == nil {
		b.owners, b.last = map[string]*coordinator{}, map[string]*coordinator{}
		b.out, b.orphans, b.sent = map[string]*coordinator{}, map[string]time.Time{}, map[string]bool{}
	}
	for _, m := range e.Messages {
		switch {
		case e.Phase == wire.Reply && (e.Name == "submit" || e.Name == "trust" || e.Name == "claim"):
			b.take(c, m.Key)
		case e.Phase == wire.Reply && e.Name == "move" && b.owners[m.Key] == c:
			b.settle(m)
		case e.Phase == wire.Request && e.Name == "basic.publish":
			b.out[m.Key], b.sent[m.Key] = c, true
		}
	}
}

// settle notes an owner's outcome; guard is held. After some outcomes the owner goes on with the message.
func (b *custody) settle(m wire.Message) {
	if m.Word == "committed" {
		return
	}
	delete(b.out, m.Key)
	if m.Word == "acked" || m.Word == "acked_marked" {
		delete(b.sent, m.Key)
	}
	if m.Word != "acked_marked" {
		delete(b.owners, m.Key)
	}
}

// take notes a claim; guard is held.
func (b *custody) take(c *coordinator, key string) {
	b.owners[key], b.last[key] = c, c
	if b.sent[key] {
		b.again++
	}
	if since, orphan := b.orphans[key]; orphan {
		b.taken = append(b.taken, time.Since(since))
		delete(b.orphans, key)
	}
}

// caller is the coordinator that calls a producer about a message: the last claimant, because the message may be
// settled already.
func (b *custody) caller(key string) *coordinator {
	b.guard.Lock()
	defer b.guard.Unlock()
	return b.last[key]
}

// bereave notes the death of a coordinator, and returns how many messages the coordinator held and of how many it had
// sent copies.
func (b *custody) bereave(c *coordinator) (held, out int) {
	b.guard.Lock()
	defer b.guard.Unlock()
	for key, owner := range b.owners {
		if owner == c {
			held++
			b.orphans[key] = time.Now()
			delete(b.owners, key)
		}
	}
	maps.DeleteFunc(b.last, func(_ string, owner *coordinator) bool { return owner == c })
	for key, owner := range b.out {
		if owner == c {
			out++
			delete(b.out, key)
		}
	}
	return held, out
}

// claimedAgain counts the claims of messages of which a copy was out.
func (b *custody) claimedAgain() int {
	b.guard.Lock()
	defer b.guard.Unlock()
	return b.again
}

// takeovers counts the messages whose owner had gone and that another claimed, and returns the longest wait.
func (b *custody) takeovers() (n int, longest time.Duration) {
	b.guard.Lock()
	defer b.guard.Unlock()
	for _, waited := range b.taken {
		longest = max(longest, waited)
	}
	return len(b.taken), longest.Round(time.Millisecond)
}
