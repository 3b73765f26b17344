package amqpbroker

import (
	"bufio"
	"errors"
	"io"
	"net"
	"time"
)

const (
	// maxFrame and maxChannel are the offer to clients, as with RabbitMQ; minFrame is the least that clients may choose.
	maxFrame   = 131072
	minFrame   = 4096
	maxChannel = 2047
	// heartbeat is the offer to clients, as with RabbitMQ; clients may choose a shorter one.
	heartbeat = time.Minute
	// handshakeTimeout is how long a client may take until its connection is open, as with RabbitMQ.
	handshakeTimeout = 10 * time.Second
	// closeTimeout is how long a client may take to agree that its connection is closed.
	closeTimeout = 5 * time.Second
	// readBuffer holds a good number of small publishings, to be read and confirmed together.
	readBuffer = 64 << 10
)

// errBye ends a connection that was closed cleanly.
var errBye = errors.New("closed")

// connection is a client's connection. A goroutine reads and handles methods under the broker's lock; another goroutine
// writes.
type connection struct {
	broker *Broker
	nc     net.Conn
	out    *outbox

	// The reader's own.
	in       *bufio.Reader
	incoming map[uint16]*incoming
	phase    phase
	// idle is how long the client may be silent; 0 means without limit.
	idle time.Duration
	// until is the deadline for opening or closing; zero means neither is under way.
	until time.Time

	// Guarded by the broker's lock.
	channels map[uint16]*channel
	maxFrame uint32
	gone     bool
}

func newConnection(b *Broker, nc net.Conn) *connection {
	c := &connection{
		broker:   b,
		nc:       nc,
		out:      newOutbox(),
		incoming: map[uint16]*incoming{},
		channels: map[uint16]*channel{},
		maxFrame: maxFrame,
		until:    time.Now().Add(handshakeTimeout),
	}
	c.in = bufio.NewReaderSize(input{c}, readBuffer)
	return c
}

// send sends one method.
func (c *connection) send(channel uint16, id methodID, arguments encoder) {
	c.out.add(func(b []byte) []byte { return appendMethod(b, channel, id, arguments) })
}

// sendContent sends a method with a message.
func (c *connection) sendContent(channel uint16, id methodID, arguments encoder, properties, body []byte) {
	c.out.add(func(b []byte) []byte {
		return appendContent(appendMethod(b, channel, id, arguments), channel, properties, body, c.maxFrame)
	})
}

// write is the goroutine that writes.
func (c *connection) write() {
	err := c.out.run(c.nc)
	c.out.breakOff()
	c.broker.mu.Lock()
	c.gone = true
	c.broker.mu.Unlock()
	if closeErr := c.nc.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		c.broker.config.Logger.Debug("an AMQP client is gone", "cause", err)
	}
}

// read is the goroutine that reads.
func (c *connection) read() {
	err := c.serve()
	if !errors.Is(err, errBye) && !errors.Is(err, io.EOF) {
		c.broker.config.Logger.Debug("an AMQP connection has ended", "cause", err)
	}
	c.leave()
	c.out.finish()
}

// serve handles the client's frames until the connection ends; the error is the reason.
func (c *connection) serve() error {
	if err := c.greet(); err != nil {
		return err
	}
	for {
		f, err := readFrame(c.in, c.maxFrame)
		if err == nil {
			err = c.handle(f)
		}
		if err = c.fail(err); err != nil {
			return err
		}
	}
}

// input is the source of the reader's buffer.
type input struct{ conn *connection }

// Read reads from the client, which may be silent for so long only.
func (in input) Read(p []byte) (int, error) {
	c := in.conn
	deadline := c.until
	if deadline.IsZero() && c.idle > 0 {
		deadline = time.Now().Add(c.idle)
	}
	if err := c.nc.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	return c.nc.Read(p)
}

// handle handles a frame.
func (c *connection) handle(f frame) error {
	if f.kind == frameHeartbeat {
		return nil
	}
	if c.phase == phaseClosing && !c.isClose(f) {
		return nil
	}
	cmd, err := c.assemble(f)
	if err != nil {
		return err
	}
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	return c.do(cmd)
}

// do runs a command; nil stands for an incomplete command.
func (c *connection) do(cmd *command) error {
	if cmd == nil {
		return nil
	}
	if cmd.id.class() == connectionStart.class() {
		return c.handleConnection(cmd)
	}
	return c.handleChannel(cmd)
}

// fail answers an error of the client with a close of the connection. An error is returned when there is nothing more
// to read.
func (c *connection) fail(err error) error {
	var e *exception
	if !errors.As(err, &e) {
		return err
	}
	if c.phase == phaseClosing {
		return e
	}
	c.broker.config.Logger.Warn("an AMQP connection is closed for an error of its client", "cause", err)
	c.phase = phaseClosing
	c.until = time.Now().Add(closeTimeout)
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.send(0, connectionClose, encoder(nil).u16(e.code).shortString(e.Error()).u32(0))
	c.releaseAll()
	if e.code == codeFrameError {
		return e // the following bytes cannot be parsed any more
	}
	return nil
}

// cut drops the connection without a word.
func (c *connection) cut() {
	c.gone = true
	// The reader and the writer notice the close by themselves, and close the connection once more.
	_ = c.nc.Close()
}

// leave takes all traces of the connection out of the broker.
func (c *connection) leave() {
	c.broker.mu.Lock()
	defer c.broker.mu.Unlock()
	c.gone = true
	delete(c.broker.connections, c)
	c.releaseAll()
}

// releaseAll ends all channels and deletes the connection's exclusive queues. Every consumer goes before any message is
// given back, or a channel would get the messages given back by another channel.
func (c *connection) releaseAll() {
	for _, ch := range c.channels {
		ch.dropConsumers()
	}
	for _, ch := range c.channels {
		ch.release(delivery.fail)
	}
	clear(c.channels)
	for _, q := range c.broker.queues {
		if q.owner == c {
			q.delete()
		}
	}
}
