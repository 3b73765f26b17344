package nats

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// publishCall is one call of Publish.
type publishCall struct {
	*publish.Call
	publisher *Publisher

	mu sync.Mutex
	// used are the connections that messages were sent on.
	used map[*connection]bool
	// expired is set when the confirm timeout has passed.
	expired atomic.Bool
}

// Publish sends a batch and hands over the streams' answers. See publish.Publisher; messages of one batch to one stream
// are sent in their order. Answers that take longer than a quarter of a second are handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []publish.Message, answered func(places []int, results []publish.Result),
) {
	p.Life.Call(ctx, batch, answered, func(call *publish.Call) (send func([]int), end func()) {
		c := &publishCall{Call: call, publisher: p, used: make(map[*connection]bool, 1)}
		stop := context.AfterFunc(c.Answers, func() { c.Protect(c.expire) })
		return c.send, func() { stop() }
	})
}

// send sends the messages to one stream.
func (c *publishCall) send(places []int) {
	for _, i := range places {
		c.dispatch(i)
	}
}

// dispatch sends one message, or settles the message without.
func (c *publishCall) dispatch(i int) {
	p, m := c.publisher, toMessage(&c.Batch[i])
	if err := m.Check(); err != nil {
		c.Add(i, publish.Refused.Because(err)) // no answer of a stream, so the routes learn nothing
		return
	}
	if err := p.streams.Refusal(m.Stream); err != nil {
		c.Add(i, publish.Refused.Because(err))
		return
	}
	if p.Decide(c.Call, i) == 0 {
		return
	}
	conn, err := p.Admit(c.Call)
	if err != nil {
		c.Settle(i, publish.Unsent.Because(err))
		return
	}
	c.mu.Lock()
	c.used[conn] = true
	c.mu.Unlock()
	conn.publish(m.NATS(), &sent{call: c, place: i})
}

// conclude settles a message that took a slot.
func (c *publishCall) conclude(s *sent, result publish.Result) {
	c.Release()
	c.Settle(s.place, result)
}

// untaken concludes a message that no server took: no copy is out.
func (c *publishCall) untaken(conn *connection, s *sent) {
	m := &c.Batch[s.place]
	wrong, why := c.publisher.streams.Untaken(c.Answers, conn.js, m.Exchange, subjectOf(m))
	if wrong {
		c.conclude(s, publish.Refused.Because(why))
		return
	}
	c.conclude(s, publish.Unsent.Because(why))
}

// expire settles the messages without an answer in time.
func (c *publishCall) expire() {
	c.expired.Store(true) // from here on nothing is added to the messages in flight
	c.mu.Lock()
	used := maps.Clone(c.used)
	c.mu.Unlock()
	for conn := range used {
		for _, s := range conn.expire(c, c.unanswered(conn)) {
			c.conclude(s, c.Unanswered())
		}
	}
}

// unanswered records messages without an answer in time. A late acknowledgement ends the stall of the stream: the
// stream had no leader or the server stood still, and the stream does acknowledge.
func (c *publishCall) unanswered(conn *connection) func(place int) func() {
	p := c.publisher
	asked := make(map[string]bool)
	return func(place int) func() {
		m := &c.Batch[place]
		if stream := m.Exchange; !asked[stream] {
			asked[stream] = true
			p.Background.Go(func() { p.streams.NoteSilence(context.WithoutCancel(c.Answers), conn.js, stream) })
		}
		return p.Routes.Unanswered(m)
	}
}
