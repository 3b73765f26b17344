package cli

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// demoCommand starts msghandler-demo, which was a command of msghandler before.
type demoCommand struct {
	Args []string `arg:"" optional:"" help:"The arguments of msghandler-demo; see msghandler-demo --help."`
}

// Run replaces this process by msghandler-demo.
func (c *demoCommand) Run(s *commandline.Session) error {
	return replaceBy(s, "msghandler-demo", c.Args)
}

// benchCommand starts msghandler-bench, which was a command of msghandler before.
type benchCommand struct {
	Args []string `arg:"" optional:"" help:"The arguments of msghandler-bench; see msghandler-bench --help."`
}

// Run replaces this process by msghandler-bench, which reads the same configuration file.
func (c *benchCommand) Run(s *commandline.Session) error {
	arguments := c.Args
	if file := s.ConfigFile(); file != "" {
		arguments = append([]string{"--config=" + file}, arguments...)
	}
	return replaceBy(s, "msghandler-bench", arguments)
}

// replaceBy replaces this process by a program of the same release. Signals and the exit status are then the program's.
func replaceBy(s *commandline.Session, name string, arguments []string) error {
	path, err := commandline.FindProgram(name)
	if err != nil {
		return fmt.Errorf("%w; the command is a program of its own now", err)
	}
	err = syscall.Exec(path, append([]string{name}, arguments...), s.Env) //nolint:gosec // a program of this release
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%s may not be executed: %w; make the file executable", path, err)
	}
	return fmt.Errorf("start %s: %w", path, err)
}
