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

// ReferenceCommand makes the executable a bare reference, which prints its address and ends with its standard input.
const ReferenceCommand = "__bare"

// ReferenceCalls is the flag of a reference that only answers calls.
const ReferenceCalls = "--calls"

// Reference is a bare reference in a process of its own.
type Reference struct {
	// Address is host:port, PID the process.
	Address string
	PID     int
	command *exec.Cmd
	input   io.Closer
}

// StartReference starts the executable, which is msghandler-bench, as a bare reference; flags may hold ReferenceCalls.
func StartReference(ctx context.Context, executable, redisURL, amqpURL string, flags ...string) (*Reference, error) {
	args := append([]string{ReferenceCommand}, flags...)
	// The end of the context does not kill the process: Stop lets the reference clean up.
	command := exec.CommandContext(context.WithoutCancel(ctx), executable, args...) //nolint:gosec // this program
	// In the environment, where other users do not see the passwords.
	command.Env = append(os.Environ(), "MSGHANDLER_REDIS_URL="+redisURL, "MSGHANDLER_AMQP_URL="+amqpURL)
	command.Stderr = os.Stderr
	input, failed := command.StdinPipe()
	output, err := command.StdoutPipe()
	if err = errors.Join(failed, err); err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the bare reference: %w", err)
	}
	r := &Reference{PID: command.Process.Pid, command: command, input: input}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the bare reference does not serve: %w", err), r.Stop())
	}
	r.Address = strings.TrimSpace(line)
	return r, nil
}

// Stop ends the reference and waits until it has cleaned up.
func (r *Reference) Stop() error {
	_ = r.input.Close() // the end of the input ends the reference
	if err := r.command.Wait(); err != nil {
		return fmt.Errorf("the bare reference: %w", err)
	}
	return nil
}
