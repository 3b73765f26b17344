package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/test/bench/bare"
)

// The environment of a process of this program that serves the bare chain.
const bareRedis, bareAMQP = "BARE_REDIS_URL", "BARE_AMQP_URL"

// reference is the bare chain in a process of its own, so that its costs can be told from those of the producers.
type reference struct {
	address string
	pid     int
}

// startReference starts this program as the bare chain on a setup's Redis and broker.
func (s *setup) startReference() reference {
	s.b.Helper()
	executable, err := os.Executable()
	s.must(err)
	command := exec.Command(executable)
	command.Env = append(os.Environ(), bareRedis+"="+s.redis.URL(), bareAMQP+"="+s.rabbit.URL)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	s.must(err)
	output, err := command.StdoutPipe()
	s.must(err)
	s.must(command.Start())
	s.b.Cleanup(func() {
		_ = input.Close() // the end of its input ends the reference
		if err := command.Wait(); err != nil {
			s.b.Errorf("the bare chain: %v", err)
		}
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	s.must(err)
	return reference{strings.TrimSpace(line), command.Process.Pid}
}

// under is a load on the reference in place of the coordinators.
func (r reference) under(load bench.Config) bench.Config {
	load.Coordinators, load.Processes = []string{r.address}, maps.Clone(load.Processes)
	load.Processes[bench.Coordinator] = []int{r.pid}
	return load
}

// serveReference serves the bare chain until standard input ends, and prints its address.
func serveReference() error {
	served, err := bare.New(bare.Config{
		RedisURL: os.Getenv(bareRedis), AMQPURL: os.Getenv(bareAMQP), Prefix: "msghandler-bench-bare",
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- served.Serve(ctx, listener) }()
	fmt.Fprintln(os.Stdout, listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	cancel()
	return errors.Join(err, <-ended)
}
