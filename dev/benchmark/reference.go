package benchmark

import (
	"context"
	"fmt"
	"io"
	"net"

	"github.com/msghandler/msghandler/dev/bench/bare"
	"github.com/msghandler/msghandler/dev/bench/compare"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// reference is the program of the bare reference, which this program starts as a process of its own for --ceilings.
var reference = commandline.Program{
	Name: "msghandler-bench " + compare.ReferenceCommand, Grammar: func() any { return &referenceCommand{} },
}

// referenceCommand is what can be typed for a reference.
type referenceCommand struct {
	Calls bool `help:"Only the calls: nothing is stored or published."`
}

// Run serves until standard input ends, which its starter closes, or whose starter has died.
func (c *referenceCommand) Run(ctx context.Context, s *commandline.Session) error {
	settings, err := s.Load(nil)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	parts := bare.Config{RedisURL: settings.Redis.URL, AMQPURL: settings.AMQP.URLs[0], Prefix: "msghandler-bench-bare"}
	if c.Calls {
		parts = bare.Config{}
	}
	served, err := bare.New(parts)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// An interrupt on a terminal goes to both processes, and the process that started the reference still measures.
	ctx, cancel := context.WithCancel(ctx)
	var reading lifecycle.Group
	reading.Go(func() {
		_, _ = io.Copy(io.Discard, s.In) // an error is an end as well
		cancel()
	})
	// After an error of the reference, nothing else ends the read: the process does.
	defer cancel()
	if _, err := fmt.Fprintln(s.Out, listener.Addr()); err != nil {
		return err
	}
	return served.Serve(ctx, listener)
}
