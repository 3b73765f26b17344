package docs

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/dev"
	"github.com/msghandler/msghandler/dev/benchmark"
	"github.com/msghandler/msghandler/dev/demo/consumers"
	"github.com/msghandler/msghandler/dev/demo/orders"
	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/config"
)

// programs are the programs of the repository. The test's executable runs as one of them when its name is the
// program's: the sessions of pages need no second build.
var programs = map[string]func(args []string) int{
	"msghandler":       runProgram(cli.Program),
	"msghandler-dev":   runProgram(dev.Program),
	"msghandler-bench": runProgram(benchmark.Program),
	"until-output":     untilOutput,
	"forward-ports":    forwardPorts,
	"producer-demo": func(args []string) int {
		return orders.Command(context.Background(), args, os.Stdin, os.Stdout, os.Stderr)
	},
	"consumer-demo": func(args []string) int {
		return consumers.Command(context.Background(), args, os.Stdout, os.Stderr)
	},
}

func runProgram(p commandline.Program) func(args []string) int {
	return func(args []string) int {
		process := commandline.System()
		process.Args = args
		return p.Run(context.Background(), process)
	}
}

// parsers are the programs whose arguments are parsed in this process. To make a parser takes long.
var parsers = struct {
	mu sync.Mutex
	of map[string]func() (*kong.Kong, error)
}{of: map[string]func() (*kong.Kong, error){
	"msghandler":       sync.OnceValues(parserOf(cli.Program)),
	"msghandler-dev":   sync.OnceValues(parserOf(dev.Program)),
	"msghandler-bench": sync.OnceValues(parserOf(benchmark.Program)),
}}

func parserOf(p commandline.Program) func() (*kong.Kong, error) {
	return func() (*kong.Kong, error) {
		parser, _, err := p.Parser(kong.Exit(func(int) {}), kong.Writers(io.Discard, io.Discard))
		return parser, err
	}
}

// installPrograms makes a directory with all programs, for the PATH.
func installPrograms(t *testing.T) string {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name := range programs {
		if err := os.Symlink(executable, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// parseArguments has a program parse its arguments, without running the program. Without whole, arguments may be
// missing at the end, as where a sentence names a command.
func parseArguments(program string, args []string, whole bool) error {
	newParser, ours := parsers.of[program]
	if !ours {
		_, err := help(program, args...)
		return err
	}
	parsers.mu.Lock()
	defer parsers.mu.Unlock()
	parser, err := newParser()
	if err != nil {
		return err
	}
	path, err := kong.Trace(parser, args)
	if err == nil {
		err = path.Error
	}
	if err != nil && !whole && strings.Contains(err.Error(), `got "EOL"`) {
		return nil // a sentence names a flag without its value
	}
	if err == nil {
		err = checkKeys(path)
	}
	if err == nil && whole {
		_, err = parser.Parse(args)
	}
	return err
}

// help has a demo parse its arguments and print its help: with --help the demo ends before it begins.
func help(program string, args ...string) (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.Cmd{Path: executable, Args: append(append([]string{program}, args...), "--help")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// checkKeys loads the keys of the configuration that are given as flags. Files need not exist.
func checkKeys(path *kong.Context) error {
	for _, step := range path.Path {
		if step.Flag == nil || step.Flag.Group == nil {
			continue
		}
		value, isText := path.FlagValue(step.Flag).(*string)
		key, isKey := config.Find(step.Flag.Name)
		if !isText || !isKey {
			continue
		}
		if what := knownVariable(key.Env(), *value); what != "" {
			return fmt.Errorf("--%s: %s", key.Name, what)
		}
	}
	return nil
}
