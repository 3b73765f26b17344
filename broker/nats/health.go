package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// Health is how a NATS system looks to a publisher.
type Health struct {
	// Server is the product and its version.
	Server string
	// Host is the host:port of the server.
	Host string
	// Trouble is why JetStream takes no messages now; nil if it does, or if the user may not ask.
	Trouble error
	// Streams names the streams that messages cannot be delivered to safely, and why.
	Streams map[string]error
}

// Examine connects to the first server that answers, as a Publisher does, and looks for streams. Examine publishes
// nothing, and fails when no server can be connected to.
func Examine(ctx context.Context, config Config, streams ...string) (Health, error) {
	where, err := address.ParseNATS(config.URL)
	if err != nil {
		return Health{}, fmt.Errorf("URL of NATS %w", err)
	}
	var background lifecycle.Group
	c, err := dial(ctx, where, config.Complete(), nil, &background)
	if err != nil {
		return Health{}, err
	}
	defer func() {
		c.close()
		_ = background.Wait(context.WithoutCancel(ctx)) // the connection has ended
	}()
	h := Health{
		Server: "nats-server " + c.conn.ConnectedServerVersion(), Host: c.conn.ConnectedAddr(), Trouble: c.examine(ctx),
		Streams: make(map[string]error),
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(streams))) {
		if err := c.examineStream(ctx, name); err != nil {
			h.Streams[name] = err
		}
	}
	return h, nil
}

// examineStream says why messages to a stream may be lost or stay without an answer.
func (c *connection) examineStream(ctx context.Context, name string) error {
	info, err := natsconn.Find(ctx, c.js, name)
	switch {
	case err != nil:
		return err
	case info.Config.NoAck:
		return errors.New("acknowledges nothing (no_ack): its messages are refused")
	case info.Config.Retention == jetstream.InterestPolicy && info.State.Consumers == 0:
		return errors.New("drops messages while it has no consumer (retention: interest)")
	default:
		return nil
	}
}
