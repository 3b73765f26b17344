// Package dev is the command line of msghandler-dev: a coordinator with embedded servers, and the demo.
package dev

import (
	"context"

	"github.com/msghandler/msghandler/dev/story"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// commands are the commands of msghandler-dev.
type commands struct {
	commandline.Common

	Run  runCommand    `cmd:"" default:"withargs" help:"Run a coordinator with an embedded Redis and AMQP broker. Without a command, msghandler-dev does this."`
	Demo story.Command `cmd:"" help:"Tell the whole story on this terminal: orders flow, the coordinator is killed, and the books balance."`
}

const description = `msghandler for people who write a service: everything runs in one process, and nothing is durable.`

// Program is msghandler-dev.
var Program = commandline.Program{Name: "msghandler-dev", Description: description, Grammar: func() any {
	return &commands{Run: newRunCommand()}
}}

// Run runs the arguments of a process and returns the exit status.
func Run(ctx context.Context, process commandline.Process) int { return Program.Run(ctx, process) }
