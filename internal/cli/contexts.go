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

type contextListCommand struct {
	Output string `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// listedContext is an installation in --output json. The names of its fields are part of the product.
type listedContext struct {
	Name      string `json:"name"`
	Current   bool   `json:"current"`
	Server    string `json:"server"`
	TLS       bool   `json:"tls"`
	TokenFile string `json:"token_file,omitempty"`
}

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
	listed := make([]listedContext, len(all.Contexts))
	for i, name := range all.Names() {
		of := all.Contexts[name]
		listed[i] = listedContext{name, name == all.Current, of.Server, of.Encrypted(), of.TokenFile}
	}
	return s.PrintDocument(c.Output, map[string]any{"contexts": listed}, func() [][]string {
		if len(listed) == 0 {
			return [][]string{{"no contexts; write them into " + all.Path()}}
		}
		rows := [][]string{{"CURRENT", "CONTEXT", "SERVER", "TOKEN FILE"}}
		for _, of := range listed {
			rows = append(rows, []string{map[bool]string{true: "*"}[of.Current], of.Name, of.Server, cmp.Or(of.TokenFile, "-")})
		}
		return rows
	})
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
