// Package cli is the command line of msghandler: the coordinator, and the operator's commands.
package cli

import (
	"context"

	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// commands are the commands of msghandler.
type commands struct {
	commandline.Common

	Serve    serveCommand          `cmd:"" help:"Run the coordinator."`
	Stats    statsCommand          `cmd:"" help:"Count the messages of each state, and tell how each broker does."`
	Top      topCommand            `cmd:"" help:"Watch states, rates and messages in trouble, on a terminal."`
	Tail     tailCommand           `cmd:"" help:"Print what a coordinator does with messages, as it happens."`
	List     listCommand           `cmd:"" help:"List messages, oldest first."`
	Show     showCommand           `cmd:"" help:"Show one message."`
	Retry    retryCommand          `cmd:"" help:"Make messages due now: dead messages are published again, abandoned messages confirmed again."`
	Discard  discardCommand        `cmd:"" help:"Remove pending, abandoned or dead messages for good."`
	History  historyCommand        `cmd:"" help:"List finished messages, newest first."`
	Replay   replayCommand         `cmd:"" help:"Publish finished messages again, from the archive."`
	Problems problemsCommand       `cmd:"" help:"Print what was wrong: problems that last and that have ended, with start, end and place."`
	Audit    auditCommand          `cmd:"" help:"Print what operators changed, and which calls were refused."`
	Dlq      dlqCommand            `cmd:"" help:"Look after the dead letters of consumers: queues, list, count, show, replay, discard."`
	Outbox   outboxCommand         `cmd:"" help:"Print or create the table of the outbox in plain SQL."`
	Token    tokenCommand          `cmd:"" help:"Make, list and revoke tokens of callers, in a file that coordinators read."`
	Config   configCommand         `cmd:"" help:"Print the configuration that a running coordinator uses, or compare it with a file."`
	Context  contextCommand        `cmd:"" help:"List the installations that you look after, and choose the current one."`
	Doctor   doctorCommand         `cmd:"" help:"Examine Redis, RabbitMQ, configuration and producers; print each problem with its remedy."`
	Verify   verifyProducerCommand `cmd:"" name:"verify-producer" help:"Ask a running producer everything that the contract allows, and print where the producer breaks the contract."`
	Size     sizeCommand           `cmd:"" help:"Compute the memory and the CPUs that an installation needs."`
	Version  versionCommand        `cmd:"" help:"Print the version."`

	Completion completionCommand `cmd:"" help:"Print the completion script of a shell: completion bash, zsh or fish."`
	Man        manCommand        `cmd:"" help:"Print the manual page."`
}

const description = `A coordinator for half messages: a producer stores a message before its local transaction, and
the coordinator publishes it to RabbitMQ once that transaction is known to have committed.`

// Program is msghandler.
var Program = commandline.Program{Name: "msghandler", Description: description, Grammar: func() any {
	return &commands{
		Serve: newServeCommand(), Doctor: newDoctorCommand(), Verify: newVerifyProducerCommand(),
	}
}}

// Run runs the arguments of a process and returns the exit status. When the context ends, a command that serves stops
// as on SIGTERM.
func Run(ctx context.Context, process commandline.Process) int { return Program.Run(ctx, process) }
