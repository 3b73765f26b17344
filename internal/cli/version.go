package cli

import (
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/ground/build"
)

type versionCommand struct {
	Output string `short:"o" default:"table" enum:"table,json,yaml" help:"table for people, json or yaml for programs."`
}

// Run prints the version.
func (c *versionCommand) Run(s *commandline.Session) error {
	b := build.Read()
	return s.PrintDocument(c.Output, b, func() [][]string { return [][]string{{"msghandler " + b.String()}} })
}
