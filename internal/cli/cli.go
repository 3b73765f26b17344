// Package cli is the command line: it reads what was typed, runs it, and says how it ended.
//
// The exit status is 0 when it was done, 1 when it failed, 2 when it was used wrongly and 3 when there is no such message.
// What went wrong is told on standard error with its cause and a remedy.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/escape"
)

// The exit statuses.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
)

// Process is what a command has from the system.
type Process struct {
	// Args are the arguments without the program's name.
	Args []string
	// Env is the environment, as KEY=VALUE.
	Env []string
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// commands are all that can be typed.
type commands struct {
	Config string `help:"YAML file with the configuration (also: MSGHANDLER_CONFIG)." placeholder:"FILE" type:"path"`

	Serve   serveCommand          `cmd:"" help:"Run the coordinator."`
	Demo    demoCommand           `cmd:"" help:"Tell the whole story on this terminal, with nothing installed."`
	Stats   statsCommand          `cmd:"" help:"Count the messages of each state."`
	Top     topCommand            `cmd:"" help:"Watch states, rates and what is in trouble, on a terminal."`
	Tail    tailCommand           `cmd:"" help:"Tell what a coordinator does with messages, as it happens."`
	List    listCommand           `cmd:"" help:"List messages, oldest first."`
	Show    showCommand           `cmd:"" help:"Show one message."`
	Retry   retryCommand          `cmd:"" help:"Make messages due now: dead ones are published again, abandoned ones confirmed again."`
	Discard discardCommand        `cmd:"" help:"Remove pending, abandoned or dead messages for good."`
	Dlq     dlqCommand            `cmd:"" help:"Look after the dead letters of consumers: list, show, replay, discard."`
	Doctor  doctorCommand         `cmd:"" help:"Look at Redis, RabbitMQ, configuration and producers, and say what is wrong and what to do."`
	Verify  verifyProducerCommand `cmd:"" name:"verify-producer" help:"Ask a running producer all that the contract allows, and say where it breaks it."`
	Bench   benchCommand          `cmd:"" help:"Put a load on running coordinators: throughput, times, costs, and the balance of what was delivered."`
	Version versionCommand        `cmd:"" help:"Say what this is."`

	Completion completionCommand `cmd:"" help:"Print what makes a shell complete the commands: completion bash, zsh or fish."`
	Man        manCommand        `cmd:"" help:"Print the manual page."`
	Complete   completeCommand   `cmd:"" name:"__complete" hidden:""`
	Bare       bareCommand       `cmd:"" name:"__bare" hidden:""`
}

const description = `A coordinator for half messages: a producer stores a message before its local transaction, and the coordinator
publishes it to RabbitMQ once that transaction is known to have committed.`

// usageError is a wrong use that the parser cannot see.
type usageError struct{ error }

// positive refuses a duration in which nothing can be done.
func positive(flag string, d time.Duration) error {
	if d <= 0 {
		return usageError{fmt.Errorf("--%s=%s: more than no time, such as 10s", flag, d)}
	}
	return nil
}

// Run runs what was typed and returns the exit status. When the context ends, a command that serves stops as it does on
// SIGTERM.
func Run(ctx context.Context, p Process) int {
	helped := false
	parser, typed, err := newParser(kong.Writers(p.Out, p.Err), kong.Exit(func(int) { helped = true }),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return p.fail(fmt.Errorf("the command line is broken: %w", err))
	}
	command, err := parser.Parse(p.Args)
	switch {
	case helped:
		return exitDone
	case err != nil:
		return p.fail(usageError{fmt.Errorf("%w; try: msghandler --help", err)})
	}
	return p.fail(command.Run(&session{Process: p, config: typed.Config, grammar: parser.Model.Node}))
}

// newParser makes the parser of all that can be typed, and what it fills.
func newParser(options ...kong.Option) (*kong.Kong, *commands, error) {
	typed := &commands{
		Serve: newServeCommand(), Doctor: newDoctorCommand(), Verify: newVerifyProducerCommand(),
		Bench: newBenchCommand(),
	}
	parser, err := kong.New(typed, append(options, kong.Name("msghandler"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}))...)
	return parser, typed, err
}

// fail tells an error and returns its exit status; nil is none.
func (p *Process) fail(err error) int {
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintf(p.Err, "msghandler: %s\n", escape.Lines(err.Error()))
	var usage usageError
	var missing notFoundError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &missing):
		return exitNotFound
	}
	return exitFailed
}

// session is what commands share.
type session struct {
	Process
	// config is the value of --config.
	config string
	// grammar is all that can be typed.
	grammar *kong.Node
}
