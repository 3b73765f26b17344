package compare

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// ReferenceCommand is how the executable is told to be a bare reference: it prints the address that it serves at, and ends
// when its standard input does.
const ReferenceCommand = "__bare"

// ReferenceCalls is the flag for one that only makes the calls.
const ReferenceCalls = "--calls"

// reference is a bare reference in a process of its own.
type reference struct {
	address string
	pid     int
	command *exec.Cmd
	input   io.Closer
}

func (c *comparison) startReference(ctx context.Context, calls bool) (*reference, error) {
	args := []string{ReferenceCommand}
	if calls {
		args = append(args, ReferenceCalls)
	}
	// Not ended with the context: it is asked to stop, so that it can clean up.
	command := exec.CommandContext(context.WithoutCancel(ctx), c.Executable, args...) //nolint:gosec // it is this program
	// In the environment, where other users do not see the passwords.
	command.Env = append(os.Environ(), "MSGHANDLER_REDIS_URL="+c.Load.RedisURL, "MSGHANDLER_AMQP_URL="+c.Load.AMQPURL)
	command.Stderr = os.Stderr
	input, failed := command.StdinPipe()
	output, err := command.StdoutPipe()
	if err = errors.Join(failed, err); err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the bare reference: %w", err)
	}
	r := &reference{pid: command.Process.Pid, command: command, input: input}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the bare reference does not serve: %w", err), r.stop())
	}
	r.address = strings.TrimSpace(line)
	return r, nil
}

// stop ends the reference and waits until it has cleaned up.
func (r *reference) stop() error {
	_ = r.input.Close() // it is told by that
	if err := r.command.Wait(); err != nil {
		return fmt.Errorf("the bare reference: %w", err)
	}
	return nil
}
