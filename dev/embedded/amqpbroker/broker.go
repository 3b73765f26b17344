// Package amqpbroker is a small AMQP 0-9-1 broker that lives inside a process, for the demo, for trying things out and
// for tests.
//
// The broker is not durable: everything is in memory and ends with the process, also durable declarations and
// persistent messages. Nor is the broker made for the network: it listens on loopback only, has a single user, a single
// virtual host and no TLS.
//
// Within these limits the broker behaves like RabbitMQ, as a suite shows that runs against both: direct, fanout, topic
// and headers exchanges, confirms, returns, prefetch of consumers, redelivery, time-to-live of messages, dead-lettering
// with x-death, cancelled consumers, heartbeats, and exceptions with RabbitMQ's codes and texts. Quorum queues are
// accepted and count deliveries, but are no more durable than other queues.
//
// Refused are transactions, basic.recover, a prefetch of the channel, bindings between exchanges, and streams. Without
// effect are x-expires, x-max-length, x-max-length-bytes and x-overflow, alternate, internal and auto-delete exchanges,
// priorities, the user id of a message, and the CC and BCC headers. There is no flow control.
//
// Beyond what RabbitMQ can do, a Judge may decide the outcome of each publishing: a broker that nacks, returns or
// breaks the connection on demand, or forgets what it has confirmed. Alarm stops publishings, as a lack of memory does.
package amqpbroker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Config is the set-up of a broker. The zero value is ready to use.
type Config struct {
	// TakeAll has the broker confirm also messages for no queue, and for exchanges that do not exist: for tests of
	// publishers, which look at messages through Judge.
	TakeAll bool
	// Judge, when set, decides the outcome of each publishing.
	Judge Judge
	// Logger gets a line for each connection that ends in an error; nil means slog.Default().
	Logger *slog.Logger
}

// The only accepted login, and the only virtual host.
const user, password, vhost = "guest", "guest", "/"

// product is what the broker calls itself to its clients.
const product = "msghandler-dev (nothing in it is durable)"

// ErrClosed says that the broker is closed.
var ErrClosed = errors.New("the embedded AMQP broker is closed")

// Broker is a running broker. Its methods may be called concurrently.
type Broker struct {
	config Config

	// mu guards all following fields, and all state of connections, channels, exchanges and queues unless their types say
	// otherwise.
	mu          sync.Mutex
	exchanges   map[string]*exchange
	queues      map[string]*queue
	connections map[*connection]struct{}
	listeners   []net.Listener
	names       int
	alarm       *alarm
	closed      bool

	running sync.WaitGroup
}

// New returns a broker without clients: see Listen and Dial. The caller must call Close.
func New(config Config) *Broker {
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &Broker{
		config:      config,
		exchanges:   standardExchanges(),
		queues:      map[string]*queue{},
		connections: map[*connection]struct{}{},
	}
}

// Listen serves clients at a TCP address such as 127.0.0.1:0 and returns the actual address. Listen may be called
// several times.
func (b *Broker) Listen(address string) (string, error) {
	if !isLoopback(address) {
		return "", fmt.Errorf("listen on %q: only loopback addresses are allowed", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("listen for AMQP: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return "", errors.Join(ErrClosed, listener.Close())
	}
	b.listeners = append(b.listeners, listener)
	b.running.Go(func() { b.accept(listener) })
	return listener.Addr().String(), nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

func (b *Broker) accept(listener net.Listener) {
	for {
		nc, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Such as too many open files: give others the time to close some.
			b.config.Logger.Warn("the embedded AMQP broker cannot accept a connection", "cause", err)
			time.Sleep(acceptPause)
			continue
		}
		if b.ServeConn(nc) != nil {
			return
		}
	}
}

// acceptPause keeps a listener that fails again and again from taking a whole processor.
const acceptPause = 100 * time.Millisecond

// Dial connects to the broker through memory. Dial fits amqp.Config.Dial and ignores the arguments. Dial works inside a
// testing/synctest bubble when the broker was made in the same bubble.
func (b *Broker) Dial(_, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	if err := b.ServeConn(server); err != nil {
		return nil, err
	}
	return client, nil
}

// ServeConn serves a client on a connection. The error says that the broker is closed.
func (b *Broker) ServeConn(nc net.Conn) error {
	c := newConnection(b, nc)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errors.Join(ErrClosed, nc.Close())
	}
	b.connections[c] = struct{}{}
	b.running.Go(c.read)
	b.running.Go(c.write)
	return nil
}

// Close drops every connection, forgets everything and waits until nothing of the broker runs any more.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.closed = true
	b.endAlarm()
	for c := range b.connections {
		c.cut()
	}
	for _, q := range b.queues {
		q.stopTimer()
	}
	var errs []error
	for _, listener := range b.listeners {
		errs = append(errs, listener.Close())
	}
	b.listeners = nil
	b.mu.Unlock()
	b.running.Wait()
	return errors.Join(errs...)
}

// Depth is the number of ready messages in a queue, without unacknowledged deliveries; -1 without such a queue.
func (b *Broker) Depth(queue string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[queue]
	if q == nil {
		return -1
	}
	return q.ready.len()
}

// newName gives names for queues and consumers whose clients gave none.
func (b *Broker) newName(prefix string) string {
	b.names++
	return fmt.Sprintf("%s-%d", prefix, b.names)
}
