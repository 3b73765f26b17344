package benchmark_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/benchmark"
	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/servers"
)

// ran is a command's exit status and output.
type ran struct {
	status   int
	out, err string
}

// run runs msghandler-bench, and operate runs msghandler.
func run(args ...string) ran     { return runProgram(benchmark.Run, args) }
func operate(args ...string) ran { return runProgram(cli.Run, args) }

func runProgram(program func(context.Context, commandline.Process) int, args []string) ran {
	var out, errs bytes.Buffer
	process := commandline.Process{Args: args, In: strings.NewReader(""), Out: &out, Err: &errs}
	status := program(context.Background(), process)
	return ran{status, out.String(), errs.String()}
}

func (r ran) want(t *testing.T, status int, out, err string) {
	t.Helper()
	if r.status != status || !strings.Contains(r.out, out) || out == "" && r.out != "" || !strings.Contains(r.err, err) {
		t.Errorf("status %d instead of %d; want output %q and errors %q:\n%s%s", r.status, status, out, err, r.out, r.err)
	}
}

// serve runs a coordinator and returns its address, and the function that ends it.
func serve(t *testing.T, args ...string) (addr string, stop func() int) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = free.Addr().String()
	_ = free.Close()
	ctx, cancel := context.WithCancel(context.Background())
	log, ended := &servers.Log{}, make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, commandline.Process{
			Args: append([]string{"serve", "--grpc.addr", addr, "--http.addr=127.0.0.1:0"}, args...),
			Env:  []string{"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*"}, In: strings.NewReader(""), Out: log, Err: log,
		})
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(log)
		}
	})
	servers.Eventually(t, 20*time.Second, "the coordinator answers", func() bool {
		return operate("stats", "--server="+addr).status == 0
	})
	return addr, stop
}
