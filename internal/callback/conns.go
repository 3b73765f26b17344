package callback

import (
	"container/list"
	"errors"
	"sync"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

var errClosed = errors.New("the callback client is closed")

// transport makes the calls to one target, by gRPC, HTTP or a stream. A call fails with a gRPC status, whose code says
// whether the producer was reached (see reached). A call's outgoing metadata holds its token and its trace.
type transport interface {
	msghandlerv1.ProducerServiceClient
	// Close ends the connections, and the calls under way with them.
	Close() error
}

// conns keeps a connection for each target, and closes the least recently used connection when there are too many.
type conns struct {
	open func(t target) (transport, error)
	max  int

	mu     sync.Mutex
	closed bool
	to     map[target]*list.Element // of *conn
	order  *list.List               // most recently used first
}

// conn is a connection with a count of its calls. A dropped connection is closed when its last call ends.
type conn struct {
	transport
	to      target
	users   int
	dropped bool
}

func newConns(limit int, open func(t target) (transport, error)) *conns {
	return &conns{open: open, max: limit, to: map[target]*list.Element{}, order: list.New()}
}

// get returns the connection to a target; release must follow.
func (c *conns) get(t target) (*conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed
	}
	if element, ok := c.to[t]; ok {
		c.order.MoveToFront(element)
		found := element.Value.(*conn)
		found.users++
		return found, nil
	}
	opened, err := c.open(t) // does not block: each transport connects in the background, or on a call
	if err != nil {
		return nil, err
	}
	fresh := &conn{transport: opened, to: t, users: 1}
	c.to[t] = c.order.PushFront(fresh)
	if c.order.Len() > c.max {
		c.drop(c.order.Back())
	}
	return fresh, nil
}

func (c *conns) release(used *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	used.users--
	if used.dropped && used.users == 0 {
		_ = used.Close()
	}
}

// drop removes a connection, which is closed at once or when its last call ends.
func (c *conns) drop(element *list.Element) {
	old := c.order.Remove(element).(*conn)
	delete(c.to, old.to)
	old.dropped = true
	if old.users == 0 {
		_ = old.Close()
	}
}

// close ends all connections and their calls.
func (c *conns) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for element := c.order.Front(); element != nil; element = c.order.Front() {
		old := c.order.Remove(element).(*conn)
		delete(c.to, old.to)
		_ = old.Close()
	}
}
