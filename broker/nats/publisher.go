// Package nats publishes messages to NATS JetStream and reports the stream's answer to each.
//
// The exchange of a message is the stream, and the routing key the subject. A message is done only when the stream has
// sent a PubAck. These keep the promise:
//   - connection.go: one connection, from dial to loss, with its messages in flight. Nothing of a lost connection is
//     used again.
//   - package natsconn: messages in the form of NATS, what each answer of a stream means, and why no stream took a
//     message.
//   - publishcall.go: one batch on its way.
//   - publisher.go: asks JetStream whether it takes messages. Package publish has the rest of a publisher's life.
//
// JetStream deduplicates by Nats-Msg-Id, PRODUCER/ID, within the window of the stream. So a repeat after an unknown
// outcome is stored once; the PubAck of the repeat says "duplicate", and the message is done.
package nats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Config says how to publish. The URL is nats://USER:PASSWORD@HOST:PORT,HOST:PORT or tls://..., the servers of one NATS
// system; see address.ParseNATS.
type Config = publish.Config

// Publisher is a publish.Publisher on one connection. It reconnects by itself, and is safe for concurrent use.
type Publisher struct {
	// Life has the routes, which are streams: those that leave messages without an answer.
	*publish.Life[*connection]
	address address.NATS
	// discovered are the servers that a cluster names. They are kept for the next connection, as the servers of the URL
	// may be gone then.
	discovered []string
	streams    natsconn.Streams
	duplicates atomic.Int64
}

// New returns a publisher and does not wait for a server: the publisher connects in the background, and Ready reports
// the state. An error says what is not valid in the URL; it never holds the URL.
func New(config Config) (*Publisher, error) {
	where, err := address.ParseNATS(config.URL)
	if err != nil {
		return nil, fmt.Errorf("URL of NATS %w", err)
	}
	p := &Publisher{
		Life:    publish.NewLife[*connection](config, publish.RoutesConfig{ByExchange: true, Unprobed: true}),
		address: where,
	}
	p.Start(p.connect)
	return p, nil
}

// Duplicates is how many messages JetStream had already when they were published: repeats of copies whose
// acknowledgement was lost.
func (p *Publisher) Duplicates() int64 { return p.duplicates.Load() }

// lookupsTimeout bounds the wait of Close for questions about streams, which end soon after their connection.
const lookupsTimeout = 5 * time.Second

// Close does what Life.Close does, and waits for the questions about streams.
func (p *Publisher) Close(ctx context.Context) error {
	err := p.Life.Close(ctx)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupsTimeout)
	defer cancel()
	return errors.Join(err, p.streams.Wait(ending))
}

// connect uses one connection to its end and returns why the connection ended.
func (p *Publisher) connect(ctx context.Context) (broker string, lost error) {
	if where, err := address.ParseNATS(p.Config.PresentURL()); err == nil {
		p.address = where
	}
	broker = strings.Join(p.address.Hosts, ",")
	c, err := dial(ctx, p.address, p.Config, p.discovered, &p.Background)
	if err != nil {
		return broker, err
	}
	defer c.close()
	defer func() { p.discovered = c.conn.DiscoveredServers() }()
	p.streams.Forget()
	p.setBlocked(c.examine(ctx))
	p.Connected(ctx, c.conn.ConnectedAddr(), c)
	defer p.Disconnected()
	return broker, p.watch(ctx, c)
}

// watch asks JetStream regularly whether it takes messages, until the connection or the context ends. One failure may
// be a change of the leader, so a second one follows before the publisher is not ready.
func (p *Publisher) watch(ctx context.Context, c *connection) error {
	tick := time.NewTicker(p.Config.Heartbeat * 2 / 5)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case <-c.ended:
			return c.loss()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		trouble := c.examine(ctx)
		if c.conn.IsClosed() {
			continue // the end follows, with its reason
		}
		if failures++; trouble == nil {
			failures = 0
		}
		if ctx.Err() == nil && failures != 1 {
			p.setBlocked(trouble)
		}
	}
}

func (p *Publisher) setBlocked(trouble error) {
	p.Block(trouble, "look at the servers' JetStream and at the permissions of the user")
}

// noteRoom learns from an answer whether JetStream has room. The account's state does not tell: it has no limits of the
// server.
func (p *Publisher) noteRoom(fate natsconn.Fate, cause error) {
	switch fate {
	case natsconn.Stored:
		p.Stored()
	case natsconn.Unavailable:
		p.NoRoom(cause, "look at the room of the account and of the servers")
	default: // the answer says nothing about room
	}
}

var _ publish.Client = (*Publisher)(nil)
