// Package commandline is what the command lines of all programs share: a program with its arguments, the configuration
// as flags, TLS flags, documents, progress, signals, completion and exit statuses.
//
// The exit status is 0 for success, 1 for a failure, 2 for wrong usage, 3 for a message that does not exist and 4 for a
// producer that could not be examined because it was not reached. An error goes to standard error, with its cause and a
// remedy.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/ground/build"
)

// The exit statuses.
const (
	exitDone      = 0
	exitFailed    = 1
	exitUsage     = 2
	exitNotFound  = 3
	exitUnreached = 4
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

// System returns the process that runs this code.
func System() Process {
	return Process{Args: os.Args[1:], Env: os.Environ(), In: os.Stdin, Out: os.Stdout, Err: os.Stderr}
}

// UsageError is wrong usage that the parser cannot see.
type UsageError struct{ Err error }

// Error names the wrong usage.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UsageError) Unwrap() error { return e.Err }

// WrongUsage marks the error: the exit status is that of wrong usage. Errors of other packages may have the mark.
func (UsageError) WrongUsage() {}

// NotFoundError says that a message does not exist.
type NotFoundError struct{ Err error }

// Error names the message.
func (e NotFoundError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e NotFoundError) Unwrap() error { return e.Err }

// UnreachedError says that a producer was not reached, so that nothing is known of it.
type UnreachedError struct{ Err error }

// Error names the producer.
func (e UnreachedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e UnreachedError) Unwrap() error { return e.Err }

// Positive refuses a duration of zero or less, in which no command can do anything.
func Positive(flag string, d time.Duration) error {
	if d <= 0 {
		return UsageError{fmt.Errorf("--%s=%s: more than no time, such as 10s", flag, d)}
	}
	return nil
}

// Program is a program: its name, its description and its grammar.
type Program struct {
	Name, Description string
	// Grammar returns a new pointer to a struct with the tags of package kong. The struct, or each of its commands, has a
	// method Run, which may take a context.Context and a *Session.
	Grammar func() any
}

// Common are the flags of a program that reads the configuration. A grammar embeds them.
type Common struct {
	Config string `help:"YAML file with the configuration (also: MSGHANDLER_CONFIG)." placeholder:"FILE" type:"path"`
}

func (c *Common) configFile() string { return c.Config }

// Session is what a command gets: its process, and the program's grammar.
type Session struct {
	Process
	// Root is the grammar.
	Root *kong.Node
	// config is the value of --config.
	config string
	// screen is what output is fitted to; nil: the terminal of standard output.
	screen *Screen
	// unpaged says that no output goes through a pager.
	unpaged bool
}

// Note writes a line to standard error, which may hold text from outside.
func (s *Session) Note(format string, args ...any) {
	_, _ = fmt.Fprintln(s.Err, escape.Report(fmt.Sprintf(format, args...)))
}

// completeArgument is the hidden argument with which the completion scripts ask for words. The words follow after --.
const completeArgument = "__complete"

// Run parses the arguments, runs the command and returns the exit status. When the context ends, a command that serves
// stops as on SIGTERM.
func (p Program) Run(ctx context.Context, process Process) int {
	helped := false
	parser, typed, err := p.Parser(kong.Writers(process.Out, process.Err), kong.Exit(func(int) { helped = true }),
		kong.BindTo(ctx, (*context.Context)(nil)))
	if err != nil {
		return p.fail(process, fmt.Errorf("the command line is broken: %w", err))
	}
	if len(process.Args) > 0 && process.Args[0] == completeArgument {
		return p.fail(process, complete(process.Out, parser.Model.Node, process.Args[1:]))
	}
	command, err := parser.Parse(withoutHelp(process.Args))
	switch {
	case helped:
		return exitDone
	case err != nil:
		return p.fail(process, UsageError{fmt.Errorf("%w; try: %s --help", err, p.commandOf(err))})
	}
	session := &Session{Process: process, Root: parser.Model.Node}
	if common, is := typed.(interface{ configFile() string }); is {
		session.config = common.configFile()
	}
	return p.fail(process, command.Run(session))
}

// commandOf is the command whose arguments could not be parsed, or the program where no command was found.
func (p Program) commandOf(err error) string {
	var parse *kong.ParseError
	if errors.As(err, &parse) {
		if command := parse.Context.Selected(); command != nil {
			return command.FullPath()
		}
	}
	return p.Name
}

// helpWord before a command is the same as --help after the command.
const helpWord = "help"

// withoutHelp turns "help COMMAND" into "COMMAND --help".
func withoutHelp(args []string) []string {
	if len(args) > 0 && args[0] == helpWord {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// Root returns the grammar, for pages that describe the program.
func (p Program) Root() (*kong.Node, error) {
	parser, _, err := p.Parser()
	if err != nil {
		return nil, err
	}
	return parser.Model.Node, nil
}

// Parser makes the parser of the grammar, and the struct that the parser fills.
func (p Program) Parser(options ...kong.Option) (*kong.Kong, any, error) {
	typed := p.Grammar()
	parser, err := kong.New(typed, append(options, kong.Name(p.Name), kong.Description(p.Description),
		kong.Embed(&struct {
			Version kong.VersionFlag `help:"Print the version."`
		}{}), kong.Vars{"version": p.Name + " " + build.Read().String()}, filterTypes,
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}))...)
	return parser, typed, err
}

// fail prints an error and returns its exit status; nil is success.
func (p Program) fail(process Process, err error) int {
	if err == nil {
		return exitDone
	}
	_, _ = fmt.Fprintf(process.Err, "%s: %s\n", p.Name, escape.Report(err.Error()))
	var usage interface{ WrongUsage() }
	var missing NotFoundError
	var unreached UnreachedError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &missing):
		return exitNotFound
	case errors.As(err, &unreached):
		return exitUnreached
	}
	return exitFailed
}
