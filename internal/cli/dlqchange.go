package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// dlqChangeFlags are the flags of the commands that change a dead-letter queue, as of retry and discard of messages.
type dlqChangeFlags struct {
	dlqFlags
	Yes    bool   `short:"y" help:"Do not ask."`
	DryRun bool   `short:"n" help:"Change nothing; say how many would be changed."`
	Reason string `help:"Why, for a line of log on standard error, with who and how many." placeholder:"TEXT"`
}

const dlqAsks = `Named letters change at once. Letters that are not named one by one (%s) are counted first, and
the command asks; without a terminal the command needs --yes. No more letters change than were counted, the oldest
first. --dry-run with names looks at letters as dlq list does.`

type dlqReplayCommand struct {
	dlqChangeFlags
	All   bool     `help:"All that are there now."`
	Names []string `arg:"" optional:"" help:"Messages, such as orders/1001." name:"PRODUCER/ID"`
}

// Help returns the text below the usage in --help.
func (c *dlqReplayCommand) Help() string {
	return fmt.Sprintf(dlqAsks, "--all, and PRODUCER/")
}

// Run replays dead letters.
func (c *dlqReplayCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.All == (len(c.Names) > 0) {
		return commandline.UsageError{Err: errors.New("name the messages to replay, or say --all")}
	}
	return c.run(ctx, s, dlqChange{
		verb: "Replay", done: "replayed", names: c.Names,
		do: func(ctx context.Context, dead deadLetters, agreed int) (int, error) {
			if agreed > 0 {
				return dead.ReplayOldest(ctx, agreed, c.Names...)
			}
			return dead.Replay(ctx, c.Names...)
		},
	})
}

type dlqDiscardCommand struct {
	dlqChangeFlags
	Names []string `arg:"" help:"Messages, such as orders/1001." name:"PRODUCER/ID"`
}

// Help returns the text below the usage in --help.
func (c *dlqDiscardCommand) Help() string {
	return "What is discarded is gone. " + fmt.Sprintf(dlqAsks, "PRODUCER/, which means all without an id")
}

// Run removes dead letters.
func (c *dlqDiscardCommand) Run(ctx context.Context, s *commandline.Session) error {
	return c.run(ctx, s, dlqChange{
		verb: "Discard", done: "discarded", names: c.Names,
		do: func(ctx context.Context, dead deadLetters, agreed int) (int, error) {
			if agreed > 0 {
				return dead.DiscardOldest(ctx, agreed, c.Names...)
			}
			return dead.Discard(ctx, c.Names...)
		},
	})
}

// dlqChange is the difference between a replay and a discard.
type dlqChange struct {
	verb, done string
	// names are empty where all letters are meant.
	names []string
	// do makes the change. agreed is how many letters the operator agreed to change, 0 without a question.
	do func(ctx context.Context, dead deadLetters, agreed int) (int, error)
}

// asks says whether the change may be of more letters than the operator has typed.
func (c dlqChange) asks() bool {
	manyLetters := func(name string) bool { return strings.HasSuffix(name, "/") }
	return len(c.names) == 0 || slices.ContainsFunc(c.names, manyLetters)
}

// run makes a change, after a question where asks says so. Each part has its own --timeout: the operator's answer has
// none.
func (f *dlqChangeFlags) run(ctx context.Context, s *commandline.Session, c dlqChange) error {
	if err := checkLetters(c.names...); err != nil {
		return err
	}
	if f.DryRun {
		return f.count(ctx, s, c)
	}
	agreed := 0
	if c.asks() && !f.Yes {
		var err error
		if agreed, err = f.ask(ctx, s, c); err != nil {
			return err
		}
		if agreed == 0 {
			return errors.Join(f.absent(c, 0), f.printResult(s, c.done, 0))
		}
	}
	return f.letters(ctx, s, func(ctx context.Context, dead deadLetters) error {
		n, err := c.do(ctx, dead, agreed)
		f.record(s, c, n)
		if err == nil {
			err = f.absent(c, n)
		}
		return errors.Join(err, f.printResult(s, c.done, n))
	})
}

// count says how many letters would be changed.
func (f *dlqChangeFlags) count(ctx context.Context, s *commandline.Session, c dlqChange) error {
	return f.letters(ctx, s, func(ctx context.Context, dead deadLetters) error {
		n, err := dead.Count(ctx, c.names...)
		if err != nil {
			return err
		}
		document := map[string]any{c.done: n, "dry_run": true}
		return errors.Join(f.absent(c, n), s.PrintDocument(f.Output, document, func() [][]string {
			return [][]string{{fmt.Sprintf("%d would be %s", n, c.done)}}
		}))
	})
}

// ask counts the letters and asks whether to change so many. Without letters, ask asks nothing.
func (f *dlqChangeFlags) ask(ctx context.Context, s *commandline.Session, c dlqChange) (agreed int, err error) {
	if err := canAsk(s); err != nil {
		return 0, err
	}
	err = f.letters(ctx, s, func(ctx context.Context, dead deadLetters) (err error) {
		agreed, err = dead.Count(ctx, c.names...)
		return err
	})
	if err != nil || agreed == 0 {
		return 0, err
	}
	return agreed, agree(s, fmt.Sprintf("%s %d dead letters of %s?", c.verb, agreed, f.Queue))
}

// record logs a change with a reason: neither the broker nor a coordinator keeps a record.
func (f *dlqChangeFlags) record(s *commandline.Session, c dlqChange, n int) {
	if f.Reason == "" || n == 0 {
		return
	}
	slog.New(slog.NewTextHandler(s.Err, nil)).Info("dead letters "+c.done, "count", n, "queue", f.Queue, "by", operator(),
		"reason", f.Reason, "letters", cmp.Or(strings.Join(c.names, " "), "all"))
}

// operator names the person at this machine.
func operator() string {
	host, _ := os.Hostname() // without a name the host is left out
	if u, err := user.Current(); err == nil {
		return u.Username + "@" + host
	}
	return fmt.Sprintf("uid %d@%s", os.Getuid(), host)
}

// printResult prints the result.
func (f *dlqChangeFlags) printResult(s *commandline.Session, done string, n int) error {
	return s.PrintDocument(f.Output, map[string]any{done: n}, func() [][]string {
		return [][]string{{fmt.Sprintf("%s %d", done, n)}}
	})
}

// absent says that some of the named letters do not exist; nil where all exist.
func (f *dlqChangeFlags) absent(c dlqChange, found int) error {
	missing := len(c.names) - found
	if missing <= 0 {
		return nil
	}
	return commandline.NotFoundError{
		Err: fmt.Errorf("%d of the %d named are not in %s: %w", missing, len(c.names), f.Queue, consumer.ErrNoLetter),
	}
}
