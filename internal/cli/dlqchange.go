package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/app/letters"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// dlqChangeFlags are the flags of the commands that change a dead-letter queue, as of retry and discard of messages.
type dlqChangeFlags struct {
	dlqFlags
	dlqFilterFlags
	Yes    bool   `short:"y" help:"Do not ask."`
	DryRun bool   `short:"n" help:"Change nothing; say how many would be changed, and which groups they are of."`
	Reason string `help:"Why, for a line of log on standard error, with who and how many." placeholder:"TEXT"`
}

const dlqAsks = `Named letters change at once. Letters that are not named one by one (%s, and letters
of a filter) are counted first, and the command asks; without a terminal the command needs --yes. No more letters change
than were counted, the oldest first. --dry-run with names or a filter looks at letters as dlq list does.`

type dlqReplayCommand struct {
	dlqChangeFlags
	All   bool     `help:"All that are there now, or all that match the filter."`
	Names []string `arg:"" optional:"" help:"Messages, such as orders/1001." name:"PRODUCER/ID"`
}

// Help returns the text below the usage in --help.
func (c *dlqReplayCommand) Help() string {
	return fmt.Sprintf(dlqAsks, "--all, PRODUCER/")
}

// Run replays dead letters.
func (c *dlqReplayCommand) Run(ctx context.Context, s *commandline.Session) error {
	filters := c.dlqFilterFlags != dlqFilterFlags{}
	if len(c.Names) > 0 && (c.All || filters) || len(c.Names) == 0 && !c.All && !filters {
		return commandline.UsageError{Err: errors.New("name the messages to replay, or say --all, or give a filter")}
	}
	return c.run(ctx, s, dlqChange{
		verb: "Replay", done: "replayed", filter: c.filter(c.Names...), do: letters.DeadLetters.ReplaySelected,
		publishes: true,
	})
}

type dlqDiscardCommand struct {
	dlqChangeFlags
	Names []string `arg:"" optional:"" help:"Messages, such as orders/1001." name:"PRODUCER/ID"`
}

// Help returns the text below the usage in --help.
func (c *dlqDiscardCommand) Help() string {
	return "What is discarded is gone. " + fmt.Sprintf(dlqAsks, "PRODUCER/, which means all without an id")
}

// Run removes dead letters.
func (c *dlqDiscardCommand) Run(ctx context.Context, s *commandline.Session) error {
	if (len(c.Names) > 0) == (c.dlqFilterFlags != dlqFilterFlags{}) {
		return commandline.UsageError{Err: errors.New("name the messages to discard, or give a filter")}
	}
	return c.run(ctx, s, dlqChange{
		verb: "Discard", done: "discarded", filter: c.filter(c.Names...), do: letters.DeadLetters.DiscardSelected,
	})
}

// dlqChange is the difference between a replay and a discard.
type dlqChange struct {
	verb, done string
	// filter selects the letters.
	filter letters.Filter
	do     func(dead letters.DeadLetters, ctx context.Context, s consumer.Selection) (int, error)
	// publishes says that the letters are published to their exchanges.
	publishes bool
}

// asks says whether the change may be of more letters than the operator has typed.
func (c *dlqChange) asks() bool {
	manyLetters := func(name string) bool { return strings.HasSuffix(name, "/") }
	return len(c.filter.Names) == 0 || slices.ContainsFunc(c.filter.Names, manyLetters)
}

// run makes a change, after a question where asks says so. Each part has its own --timeout: the operator's answer has
// none.
func (f *dlqChangeFlags) run(ctx context.Context, s *commandline.Session, c dlqChange) error {
	if err := cmp.Or(checkLetters(c.filter.Names...), f.check()); err != nil {
		return err
	}
	if f.DryRun {
		return f.count(ctx, s, c)
	}
	agreed, asked := 0, time.Now()
	if c.asks() && !f.Yes {
		var err error
		if agreed, err = f.ask(ctx, s, c); err != nil {
			return err
		}
		if agreed == 0 {
			return errors.Join(f.absent(c, 0), f.printResult(s, c.done, 0))
		}
	}
	return f.letters(ctx, s, func(ctx context.Context, dead letterBox) error {
		n, err := f.change(ctx, s, dead, c, consumer.Selection{
			Limit: agreed, Match: func(l *consumer.Letter) bool { return c.filter.Match(l, asked) },
		})
		f.record(s, c, n)
		if err == nil {
			err = f.absent(c, n)
		}
		return errors.Join(err, f.printResult(s, c.done, n))
	})
}

// change changes the letters of a selection, and shows how many were changed.
func (f *dlqChangeFlags) change(
	ctx context.Context, s *commandline.Session, dead letterBox, c dlqChange, selected consumer.Selection,
) (int, error) {
	far, changed := s.Progress(), 0
	defer far.End()
	selected.Changed = func(*consumer.Letter) {
		changed++
		far.Update("%s %d letters", c.done, changed)
	}
	selected.MayReplay = dead.mayPublish.Check
	return c.do(dead.DeadLetters, ctx, selected)
}

// counted counts the letters of the change. The length of a whole queue is asked, and no letter taken, unless the
// letters are published: then each says where. A count without a look has no groups.
func (c *dlqChange) counted(
	ctx context.Context, s *commandline.Session, dead letterBox,
) (*letters.Groups, error) {
	if !c.publishes {
		dead.mayPublish = nil
	}
	if c.publishes || !c.filter.All() {
		return countLetters(ctx, s, dead, c.filter)
	}
	n, err := dead.Count(ctx)
	return &letters.Groups{Letters: n}, err
}

// count says how many letters would be changed, and which groups they are of.
func (f *dlqChangeFlags) count(ctx context.Context, s *commandline.Session, c dlqChange) error {
	return f.letters(ctx, s, func(ctx context.Context, dead letterBox) error {
		counted, err := c.counted(ctx, s, dead)
		if err != nil {
			return err
		}
		document := map[string]any{
			c.done: counted.Letters - counted.Staying(), "dry_run": true, "groups": newLetterCount(counted).Groups,
		}
		return errors.Join(f.absent(c, counted.Letters), s.PrintDocument(f.Output, document, func() [][]string {
			rows := [][]string{{fmt.Sprintf("%d would be %s", counted.Letters-counted.Staying(), c.done)}}
			return append(append(rows, stayRows(counted)...), groupRows(counted, time.Now())...)
		}))
	})
}

// stayRows say which letters a replay leaves where they are.
func stayRows(counted *letters.Groups) (rows [][]string) {
	for _, why := range slices.Sorted(maps.Keys(counted.Refused)) {
		rows = append(rows, []string{fmt.Sprintf("%s would stay: %s", amount(int64(counted.Refused[why]), "letter"), why)})
	}
	return rows
}

// destinationRows say where the letters of a replay go.
func destinationRows(counted *letters.Groups) (rows [][]string) {
	to := map[[2]string]int{}
	for _, g := range counted.All() {
		to[[2]string{g.Exchange, g.RoutingKey}] += g.Letters
	}
	for _, at := range slices.SortedFunc(maps.Keys(to), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		letters := amount(int64(to[at]), "letter")
		rows = append(rows, []string{fmt.Sprintf("%s to exchange %q, routing key %q", letters, at[0], at[1])})
	}
	return rows
}

// ask counts the letters and asks whether to change so many. Without letters, ask asks nothing.
func (f *dlqChangeFlags) ask(ctx context.Context, s *commandline.Session, c dlqChange) (agreed int, err error) {
	q := question{verb: c.verb, noun: "dead letter", rest: " of " + f.Queue}
	n, err := askToChange(s, q, func() (n int64, more bool, err error) {
		err = f.letters(ctx, s, func(ctx context.Context, dead letterBox) error {
			counted, err := c.counted(ctx, s, dead)
			n = int64(counted.Letters)
			if c.publishes {
				for _, row := range append(destinationRows(counted), stayRows(counted)...) {
					fmt.Fprintln(s.Err, row[0])
				}
			}
			return err
		})
		return n, false, err
	})
	return int(n), err
}

// record logs a change with a reason: neither the broker nor a coordinator keeps a record.
func (f *dlqChangeFlags) record(s *commandline.Session, c dlqChange, n int) {
	if f.Reason == "" || n == 0 {
		return
	}
	slog.New(slog.NewTextHandler(s.Err, nil)).Info("dead letters "+c.done, "count", n, "queue", f.Queue, "by", operator(),
		"reason", f.Reason, "letters", cmp.Or(strings.Join(c.filter.Names, " "), f.words(), "all"))
}

// words describe the filter.
func (f *dlqFilterFlags) words() string {
	var words []string
	for _, part := range []struct{ name, value string }{
		{"producer", f.Producer}, {"consumer", f.Consumer}, {"exchange", f.Exchange}, {"cause", f.Cause},
	} {
		if part.value != "" {
			words = append(words, fmt.Sprintf("--%s=%q", part.name, part.value))
		}
	}
	if f.OlderThan > 0 {
		words = append(words, "--older-than="+f.OlderThan.String())
	}
	return strings.Join(words, " ")
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
	missing := len(c.filter.Names) - found
	if missing <= 0 {
		return nil
	}
	return commandline.NotFoundError{
		Err: fmt.Errorf("%d of the %d named are not in %s: %w", missing, len(c.filter.Names), f.Queue, consumer.ErrNoLetter),
	}
}
