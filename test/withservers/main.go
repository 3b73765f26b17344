// Command withservers runs a command with one RabbitMQ for all tests of the command, which saves each package ten
// seconds:
//
//	withservers -- go test ./...
//
// It starts a private node, names the node in the environment variable servers.Variable, runs the command, stops the
// node and exits with the command's status. Without RabbitMQ on the machine the command runs nevertheless, and its
// tests name the missing server.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/msghandler/msghandler/test/servers"
)

func main() {
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
	}
	os.Exit(status)
}

// run returns the command's exit status, or 1 or 2 and an error when it could not be run.
func run(args []string) (int, error) {
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 2, errors.New("usage: withservers -- COMMAND [ARGUMENT...]")
	}
	// The signal reaches the command as well; its end is waited for, so that the node ends last.
	ctrlC := make(chan os.Signal, 1)
	signal.Notify(ctrlC, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(ctrlC)

	dir, err := os.MkdirTemp("", "msghandler-servers-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	node, err := servers.LaunchNode(dir)
	switch {
	case errors.Is(err, servers.ErrNotInstalled):
		fmt.Fprintln(os.Stderr, "withservers:", err)
	case err != nil:
		return 1, err
	default:
		defer node.Close()
	}
	return command(args, node, ctrlC)
}

// command runs the command to its end; node may be nil. A SIGTERM is forwarded, as only a terminal signals the whole
// group.
func command(args []string, node *servers.Node, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, os.Environ()
	if node != nil {
		broker, err := json.Marshal(node.Broker())
		if err != nil {
			return 1, err
		}
		cmd.Env = append(cmd.Env, servers.Variable+"="+string(broker))
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case s := <-signals:
				if s == syscall.SIGTERM {
					_ = cmd.Process.Signal(s)
				}
			case <-ended:
				return
			}
		}
	}()
	var failed *exec.ExitError
	err := cmd.Wait()
	if errors.As(err, &failed) {
		return max(failed.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
