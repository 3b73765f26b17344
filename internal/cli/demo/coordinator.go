package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"syscall"
	"time"
)

// coordinator is msghandler serve as a child process.
type coordinator struct {
	executable string
	env        []string
	log        io.Writer
	grpc, http string
	kills      int

	cmd  *exec.Cmd
	done chan struct{}
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
		// Shorter than by default, so that nobody has to wait long for the safety net.
		"MSGHANDLER_CONFIRM_AFTER=2s",
		"MSGHANDLER_CONFIRM_TIMEOUT=1s",
		"MSGHANDLER_CONFIRM_LEASE=5s",
		"MSGHANDLER_CONFIRM_BACKOFF=1s,2s",
		"MSGHANDLER_SEND_CONFIRM_TIMEOUT=2s",
		"MSGHANDLER_SEND_LEASE=8s",
	}
	return c, nil
}

// freeAddresses finds two addresses that nobody listens on now.
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

// start starts the process and waits until it is ready.
func (c *coordinator) start(ctx context.Context) error {
	// Not ended with ctx: stop does that, and lets it finish what it has in hand.
	c.cmd = exec.CommandContext(context.WithoutCancel(ctx), c.executable, "serve")
	c.cmd.Env = c.env
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start the coordinator: %w", err)
	}
	done := make(chan struct{})
	c.done = done
	go func(cmd *exec.Cmd) {
		_ = cmd.Wait() // it is killed, or has said in the log why it ends
		close(done)
	}(c.cmd)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !c.ready(ctx) {
		select {
		case <-ticker.C:
		case <-done:
			return errors.New("the coordinator has ended before it was ready; " +
				"to see why, try: msghandler serve --redis.url=embedded: --amqp.url=embedded")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *coordinator) ready(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.http+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// kill ends the process as a power cut would.
func (c *coordinator) kill() {
	c.kills++
	_ = c.cmd.Process.Kill() // it may have ended already
	<-c.done
}

// stop asks the process to stop, and kills it when that takes too long.
func (c *coordinator) stop(ctx context.Context) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
	case <-ctx.Done():
		c.kill()
	}
}
