package cli

import (
	"cmp"
	"fmt"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

type contextCommand struct {
	List contextListCommand `cmd:"" help:"List the installations, and mark the current one."`
	Use  contextUseCommand  `cmd:"" help:"Make an installation the current one."`
}

type contextListCommand struct{}

// Help returns the text below the usage in --help.
func (c *contextListCommand) Help() string {
	return `~/.config/msghandler/contexts.yaml (or MSGHANDLER_CONTEXTS) has the installations that you look after:

  contexts:
    production:
      server: coordinator.shop:9090
      tls_ca: ca.pem               # also: tls, tls_cert, tls_key, tls_name
      token_file: production.token

Each command then talks to one with --context NAME, and after context use NAME without it. Flags win. The token and the
TLS of the environment win where --context was not typed. Other users of the machine must not write this file, nor read
the token files. Paths are relative to the file.`
}

// Run lists the contexts.
func (c *contextListCommand) Run(s *commandline.Session) error {
	all, err := s.OpenContexts()
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	if len(all.Contexts) == 0 {
		return s.PrintTable([][]string{{"no contexts; write them into " + all.Path()}})
	}
	rows := [][]string{{"CURRENT", "CONTEXT", "SERVER", "TOKEN FILE"}}
	for _, name := range all.Names() {
		current, of := "", all.Contexts[name]
		if name == all.Current {
			current = "*"
		}
		rows = append(rows, []string{current, name, of.Server, cmp.Or(of.TokenFile, "-")})
	}
	return s.PrintTable(rows)
}

type contextUseCommand struct {
	Name string `arg:"" help:"The installation, as context list shows it."`
}

// Run makes a context the current one.
func (c *contextUseCommand) Run(s *commandline.Session) error {
	all, err := s.OpenContexts()
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	of, err := all.Find(s, c.Name)
	if err != nil {
		return commandline.UsageError{Err: err}
	}
	if err := all.Use(c.Name); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "commands talk to %s (%s) from now on\n", c.Name, of.Server)
	return err
}
