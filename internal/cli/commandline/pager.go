package commandline

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

// pagerOf is the pager of the environment, as a line of the shell: PAGER, or less where it is installed. A blank PAGER
// and cat mean no pager.
func (s *Session) pagerOf() string {
	typed := slices.ContainsFunc(s.Env, func(pair string) bool { return strings.HasPrefix(pair, "PAGER=") })
	pager := strings.TrimSpace(s.Variable("PAGER"))
	if _, err := exec.LookPath("less"); !typed && err == nil {
		pager = "less"
	}
	if pager == "cat" || s.Variable("TERM") == "dumb" {
		return ""
	}
	return pager
}

// page shows a text through the pager, and says whether the pager did. The pager handles interrupts: a reader who ends
// the pager by a signal has seen enough.
func (s *Session) page(text []byte) bool {
	line := s.pagerOf()
	if line == "" {
		return false
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	// The reader quits the pager: no context ends it. The line is the reader's own choice, as with git.
	pager := exec.CommandContext(context.Background(), "/bin/sh", "-c", line) //nolint:gosec // see above
	pager.Env = append(slices.Clone(s.Env), "LESS="+cmp.Or(s.Variable("LESS"), "FRX"))
	pager.Stdin, pager.Stdout, pager.Stderr = bytes.NewReader(text), s.Out, s.Err
	err := pager.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err == nil
	}
	const bySignal = 128 // of the shell: from here on; a status below is the pager's own failure, or the shell's
	return exit.ExitCode() < 0 || exit.ExitCode() > bySignal
}
