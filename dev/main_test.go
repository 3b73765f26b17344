package dev_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev"
	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	os.Exit(programs.Main(m, "msghandler", "msghandler-dev"))
}

// ran is a command's exit status and output.
type ran struct {
	status   int
	out, err string
}

// run runs msghandler-dev, and operate runs msghandler.
func run(args ...string) ran     { return runProgram(dev.Run, args) }
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
