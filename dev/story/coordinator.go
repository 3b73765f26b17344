package story

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// coordinator is msghandler serve as a child process.
type coordinator struct {
	executable string
	env        []string
	log        io.Writer
	grpc, http string
	kills      int

	cmd *exec.Cmd
	// process has the goroutine that waits for the end of cmd.
	process lifecycle.Group
}

func newCoordinator(executable, redisURL, amqpURL string, log io.Writer) (*coordinator, error) {
	c := &coordinator{executable: executable, log: log}
	var err error
	if c.grpc, c.http, err = freeAddresses(); err != nil {
		return nil, err
	}
	c.env = []string{
		"MSGHANDLER_GRPC_ADDR=" + c.grpc,
		"MSGHANDLER_HTTP_ADDR=" + c.http,
		"MSGHANDLER_REDIS_URL=" + redisURL,
		"MSGHANDLER_AMQP_URL=" + amqpURL,
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*",
		// Shorter than the defaults, so that the safety net acts within seconds.
		"MSGHANDLER_CONFIRM_AFTER=2s",
		"MSGHANDLER_CONFIRM_TIMEOUT=1s",
		"MSGHANDLER_CONFIRM_LEASE=5s",
		"MSGHANDLER_CONFIRM_BACKOFF=1s,2s",
		"MSGHANDLER_SEND_CONFIRM_TIMEOUT=2s",
		"MSGHANDLER_SEND_LEASE=8s",
	}
	return c, nil
}

// freeAddresses finds two addresses at which no program listens now.
func freeAddresses() (first, second string, err error) {
	a, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("find a free port: %w", err)
	}
	defer a.Close()
	b, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", fmt.Errorf("find a free port: %w", err)
	}
	defer b.Close()
	return a.Addr().String(), b.Addr().String(), nil
}

// start starts the process and waits until the coordinator is ready.
func (c *coordinator) start(ctx context.Context) error {
	// The process outlives ctx: stop ends it, and lets the coordinator finish its messages.
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), c.executable, "serve") //nolint:gosec // this program itself
	c.cmd.Env = c.env
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start the coordinator: %w", err)
	}
	cmd := c.cmd
	alive, ended := context.WithCancel(ctx)
	c.process.Go(func() {
		defer ended()
		_ = cmd.Wait() // the process was killed, or its log says why it has ended
	})
	err := commandline.WaitReady(alive, c.http)
	if err != nil && ctx.Err() == nil {
		return errors.New("the coordinator has ended before it was ready; msghandler serve shows why")
	}
	return err
}

// kill ends the process as a power cut would.
func (c *coordinator) kill() {
	c.kills++
	_ = c.cmd.Process.Kill() // the process may have ended already
	_ = c.process.Wait(context.Background())
}

// stop asks the process to stop, and kills it when that takes too long.
func (c *coordinator) stop(ctx context.Context) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // the process may have ended already
	if c.process.Wait(ctx) != nil {
		c.kill()
	}
}
