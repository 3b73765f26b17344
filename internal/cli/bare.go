package cli

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/msghandler/msghandler/internal/bench/bare"
)

// bareCommand is the reference that msghandler bench --ceilings measures coordinators against.
type bareCommand struct {
	Calls bool `help:"Only the calls: nothing is stored or published."`
}

// Run serves until standard input ends: whoever started it has gone then, or is done with it.
func (c *bareCommand) Run(ctx context.Context, s *session) error {
	settings, err := s.load(nil)
	if err != nil {
		return usageError{err}
	}
	parts := bare.Config{RedisURL: settings.Redis.URL, AMQPURL: settings.AMQP.URLs[0], Prefix: "msghandler-bench-bare"}
	if c.Calls {
		parts = bare.Config{}
	}
	reference, err := bare.New(parts)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// An interrupt on a terminal goes to both, and who started this one still measures.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, s.In) // however it ends
		cancel()
	}()
	if _, err := fmt.Fprintln(s.Out, listener.Addr()); err != nil {
		return err
	}
	return reference.Serve(ctx, listener)
}
