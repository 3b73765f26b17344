package callback

import (
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// maxAnswer is far above the answer about 500 messages with the longest ids, which is about 70 KiB.
	maxAnswer = 1 << 20
	// idleAfter is when unused connections of a target are closed.
	idleAfter = 5 * time.Minute
	// connectTimeout is short: producers are near, and a call waits no longer either.
	connectTimeout = 3 * time.Second
)

// serviceConfig spreads calls over all addresses of a name.
const serviceConfig = `{"loadBalancingConfig":[{"round_robin":{}}]}`

var errClosed = errors.New("the callback client is closed")

// conns keeps a connection for each target, and closes the least recently used connection when there are too many.
type conns struct {
	dial func(t target) (*grpc.ClientConn, error)
	max  int

	mu     sync.Mutex
	closed bool
	to     map[target]*list.Element // of *conn
	order  *list.List               // most recently used first
}

// conn is a connection with a count of its calls. A dropped connection is closed when its last call ends.
type conn struct {
	*grpc.ClientConn
	to      target
	users   int
	dropped bool
}

func newConns(limit int, dial func(t target) (*grpc.ClientConn, error)) *conns {
	return &conns{dial: dial, max: limit, to: map[target]*list.Element{}, order: list.New()}
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
	opened, err := c.dial(t) // does not block: gRPC connects in the background
	if err != nil {
		return nil, err
	}
	fresh := &conn{ClientConn: opened, to: t, users: 1}
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

// dialOptions are the options of a connection to a target.
func (c *Client) dialOptions(t target) []grpc.DialOption {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second, Control: c.rules.control(t)}
	secured := insecure.NewCredentials()
	if t.secure {
		secured = c.config.Credentials
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}),
		// Nothing from outside decides how we connect: no proxy of the environment, no service config out of DNS.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithIdleTimeout(idleAfter),
		// gRPC's own limit of two minutes would delay a producer after an outage. The loops have a circuit breaker as well.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 5 * time.Second,
			},
			MinConnectTimeout: connectTimeout,
		}),
		// Pings are sent only during a call, after so long without an answer. They find a half-open connection, and stay
		// below the ping limit of servers.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.WaitForReady(false)),
		grpc.WithMaxHeaderListSize(16 << 10),
	}
	return append(options, c.config.dialOptions...)
}
