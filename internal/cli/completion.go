package cli

import (
	"embed"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

//go:embed completion
var scripts embed.FS

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Run prints the script of a shell. The scripts ask the program for the words that may follow, so they fit every
// version.
func (c *completionCommand) Run(s *commandline.Session) error {
	script, err := scripts.ReadFile("completion/" + c.Shell)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(script)
	return err
}
