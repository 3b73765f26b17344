// Package rabbitmq publishes messages to RabbitMQ and reports the broker's answer to each.
//
// A message is done only when the broker has acknowledged the message and has not returned it. These keep the promise:
//   - confirmchannel.go: a channel in confirm mode with its unconfirmed messages. It matches returns and confirmations.
//   - the table publish.Routes: the first message to an exchange travels isolated, so that a rejected message closes no
//     other message's channel; and messages to queues that do not confirm take no places from others.
//   - connection.go: one connection, from dial to loss. Nothing of a lost connection is used again.
//   - publishcall.go: one batch on its way; isolated.go: a message that travels isolated.
//   - publisher.go: keeps a channel open. Package publish has the rest of a publisher's life.
package rabbitmq

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/ground/versions"
)

// Config says how to publish. The URL holds the addresses of one broker or of the nodes of one cluster, amqp:// or
// amqps://, separated by commas and tried in turn. A heartbeat in a URL wins over Config.Heartbeat.
type Config = publish.Config

// reopen are the waits before a channel is opened again: the more channels were closed in a row, the longer.
var reopen = backoff.Exponential(time.Millisecond, time.Second)

// steady is the lifetime after which a channel counts as healthy: its end starts the waits anew.
const steady = time.Second

// Publisher is a publish.Publisher on one connection. It reconnects by itself, and is safe for concurrent use.
type Publisher struct {
	// Life has the channel that messages share; none while it is being opened.
	*publish.Life[*confirmChannel]
	nodes []address.AMQP
	// turn counts the attempts to connect, which take the nodes in turn.
	turn int
	// connection is the present connection, or the last one.
	connection atomic.Pointer[connection]
	// isolated holds the idle channels for isolated messages; nil is a channel that is still to be opened.
	isolated chan *confirmChannel
}

// New returns a publisher and does not wait for the broker: the publisher connects in the background, and Ready reports
// the state. An error says which URL is not valid; it never holds the URL.
func New(config Config) (*Publisher, error) {
	nodes, err := parseNodes(config.URL)
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		Life:  publish.NewLife[*confirmChannel](config, publish.RoutesConfig{}),
		nodes: nodes, isolated: make(chan *confirmChannel, isolatedChannels),
	}
	for range isolatedChannels {
		p.isolated <- nil
	}
	p.Start(p.connect)
	return p, nil
}

// connect uses one connection to its end, and returns why the connection ended.
func (p *Publisher) connect(ctx context.Context) (broker string, lost error) {
	if nodes, err := parseNodes(p.Config.PresentURL()); err == nil {
		p.nodes = nodes
	}
	node := p.nodes[p.turn%len(p.nodes)]
	p.turn++
	c, err := dial(ctx, node, p.Config, &p.Background)
	if err != nil {
		return node.Host, err
	}
	defer c.close()
	p.connection.Store(c)
	p.Connected(ctx, node.Host, nil)
	defer p.Disconnected()
	if about := c.conn.Properties; ageOf(about) == TooOld {
		p.Config.Logger.WarnContext(ctx,
			"the broker's version is not supported; msghandler is not tested with it; upgrade the broker",
			"broker", node.Host, "broker_server", serverOf(about), "oldest", versions.RabbitMQ.Oldest.String())
	}
	return node.Host, p.serve(ctx, c)
}

// serve keeps a channel open until the connection or the context ends, and watches for alarms.
func (p *Publisher) serve(ctx context.Context, c *connection) error {
	alarms, alarmed := c.blocked, false
	var ch *confirmChannel
	var began time.Time
	failures := 0
	for {
		if ch == nil && !alarmed {
			stop := context.AfterFunc(ctx, c.conn.HangUp) // the broker may not answer, and Close waits
			var err error
			ch, err = c.open(p.Config.Window, p.Routes.Isolate)
			if stop(); err != nil {
				return err
			}
			began = time.Now()
			p.Use(ch)
		}
		select {
		case alarm, open := <-alarms:
			if !open {
				alarms = nil // The connection is ending.
				continue
			}
			alarmed = alarm.Active
			p.noteAlarm(alarmed, alarm.Reason)
		case <-retired(ch):
			p.retire(ch)
			if c.conn.IsClosed() {
				return c.reason()
			}
			p.logClosed(ch)
			ch = nil
			if failures++; time.Since(began) > steady {
				failures = 0
			}
			_ = backoff.Sleep(ctx, reopen.Delay(failures)) // An error is the context's: the loop ends.
		case <-c.ended:
			return c.reason()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retired is closed when the channel takes no more messages; nil without a channel.
func retired(ch *confirmChannel) <-chan struct{} {
	if ch == nil {
		return nil
	}
	return ch.retired
}

func (p *Publisher) noteAlarm(active bool, reason string) {
	var why error
	if active {
		why = blocked(reason)
	}
	p.Block(why, "free memory or disk space of the broker")
}

// blocked is the error of an alarm.
func blocked(reason string) error { return fmt.Errorf("%w: %s", publish.ErrBlocked, reason) }

func (p *Publisher) logClosed(ch *confirmChannel) {
	if err := ch.reason(); err != nil {
		p.Config.Logger.Warn("the broker closed a channel; messages in flight there are published again, each alone; "+
			"correct the exchange or the permission in the error", "cause", err)
	}
}

// retire takes a channel out of use.
func (p *Publisher) retire(ch *confirmChannel) {
	ch.retire()
	p.Retire(ch)
}

var _ publish.Client = (*Publisher)(nil)
