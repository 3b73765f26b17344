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
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// dlqChangeFlags are the flags of the commands that change a dead-letter queue, as of retry and discard of messages.
type dlqChangeFlags struct {
	dlqFlags
	operate.DeadLetterText
	Yes    bool   `short:"y" help:"Do not ask."`
	DryRun bool   `short:"n" help:"Change nothing; say how many would be changed, and which groups they are of."`
	Reason string `help:"Why, for the audit; with --direct for a line of log on standard error, with who and how many." placeholder:"TEXT"`
}

const dlqAsks = `Named letters change at once. Letters that are not named one by one (%s, and letters
of a filter) are counted first, and the command asks; without a terminal the command needs --yes. No more letters change
than were counted, the oldest first. --dry-run with names or a filter looks at letters as dlq list does.
A coordinator counts and changes at most 10,000 letters, for 15 seconds; run the command again for the others.`

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
	filters := c.DeadLetterText != operate.DeadLetterText{}
	if len(c.Names) > 0 && (c.All || filters) || len(c.Names) == 0 && !c.All && !filters {
		return commandline.UsageError{Err: errors.New("name the messages to replay, or say --all, or give a filter")}
	}
	return c.run(ctx, s, dlqChange{
		verb: "Replay", done: "replayed", typed: c.Names, action: operate.Replay,
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
	if (len(c.Names) > 0) == (c.DeadLetterText != operate.DeadLetterText{}) {
		return commandline.UsageError{Err: errors.New("name the messages to discard, or give a filter")}
	}
	return c.run(ctx, s, dlqChange{verb: "Discard", done: "discarded", typed: c.Names, action: operate.Discard})
}

// dlqChange is a replay or a discard.
type dlqChange struct {
	action     operate.Action
	verb, done string
	// typed are the names; none: the filter of the flags.
	typed []string
	names []*adminv1.MessageName
	// filter selects the letters where there are no names.
	filter *adminv1.DeadLetterFilter
}

// asks says whether the change may be of more letters than the operator has typed.
func (c *dlqChange) asks() bool {
	manyLetters := func(name string) bool { return strings.HasSuffix(name, "/") }
	return len(c.typed) == 0 || slices.ContainsFunc(c.typed, manyLetters)
}

// selected are the letters of the change, of those that were there at the time of a count.
func (c *dlqChange) selected(counted time.Time) *adminv1.DeadLetterSelection {
	if len(c.names) > 0 {
		return &adminv1.DeadLetterSelection{Names: c.names}
	}
	return &adminv1.DeadLetterSelection{Filter: operate.CountedDeadLetters(c.filter, counted)}
}

// run makes a change, after a question where asks says so. Each part has its own --timeout: the operator's answer has
// none.
func (f *dlqChangeFlags) run(ctx context.Context, s *commandline.Session, c dlqChange) (err error) {
	if c.names, err = letterNames(c.typed...); err != nil {
		return err
	}
	if c.filter, err = f.Filter(); err != nil {
		return wrongText(err)
	}
	if f.DryRun {
		return f.dryRun(ctx, s, c)
	}
	_, limit := f.most()
	asked, agreed := time.Now(), int64(limit)
	if c.asks() && !f.Yes {
		if agreed, err = f.askOperator(ctx, s, c); err != nil {
			return err
		}
		if agreed == 0 {
			return errors.Join(f.absent(c, 0), f.printResult(s, c.done, 0, false))
		}
	}
	return f.letters(ctx, s, func(ctx context.Context, desk operate.DeadLetterDesk) error {
		return f.change(ctx, s, desk, c, &adminv1.DiscardDeadLettersRequest{
			Queue: f.Queue, Selection: c.selected(asked), Reason: f.Reason,
			Limit: int32(min(agreed, int64(limit))), //nolint:gosec // at most MaxInt32
		})
	})
}

// change changes the letters of a request, and shows how many were changed.
func (f *dlqChangeFlags) change(
	ctx context.Context, s *commandline.Session, desk operate.DeadLetterDesk, c dlqChange,
	r *adminv1.DiscardDeadLettersRequest,
) error {
	far, changed := s.Progress(), 0
	if local, is := desk.(*operate.LocalDesk); is {
		local.Changed = func() {
			changed++
			far.Update("%s %d dead letters", c.done, changed)
		}
	}
	response, err := operate.ChangeDeadLetters(ctx, desk, c.action, r)
	far.End()
	if err != nil {
		return err
	}
	n := response.GetChanged()
	f.record(s, c, n)
	switch {
	case response.GetProblem() != "":
		err = errors.New(response.GetProblem())
	case !response.GetMore():
		err = f.absent(c, n)
	}
	return errors.Join(err, f.printResult(s, c.done, n, response.GetMore() || !f.Direct && n == maxLetters))
}

// dryRun says how many letters would be changed, and which groups they are of.
func (f *dlqChangeFlags) dryRun(ctx context.Context, s *commandline.Session, c dlqChange) error {
	return f.letters(ctx, s, func(ctx context.Context, desk operate.DeadLetterDesk) error {
		counted, err := f.count(ctx, s, desk, c.selected(time.Now()))
		if err != nil {
			return err
		}
		stays, rows := int64(0), [][]string(nil)
		for _, to := range counted.GetDestinations() {
			if c.action == operate.Replay && to.GetRefusal() != "" {
				stays += to.GetCount()
				rows = append(rows, []string{destinationLine(to)})
			}
		}
		n, found := counted.GetCount()-stays, newLetterCount(counted)
		document := map[string]any{c.done: n, "dry_run": true, "more": found.More, "groups": found.Groups}
		return errors.Join(f.absent(c, counted.GetCount()), s.PrintDocument(f.Output, document, func() [][]string {
			first := []string{fmt.Sprintf("%d would be %s%s", n, c.done, map[bool]string{true: "; more may match"}[found.More])}
			return append(append([][]string{first}, rows...), found.groupRows(time.Now())...)
		}))
	})
}

// destinationLine says where letters of a replay go, or why they stay.
func destinationLine(to *adminv1.DeadLetterDestination) string {
	letters := amount(to.GetCount(), "dead letter")
	if to.GetRefusal() != "" {
		return letters + " would stay: " + to.GetRefusal()
	}
	return fmt.Sprintf("%s to exchange %q, routing key %q", letters, to.GetExchange(), to.GetRoutingKey())
}

// askOperator counts the letters and asks whether to change so many. Without letters, askOperator asks nothing.
func (f *dlqChangeFlags) askOperator(
	ctx context.Context, s *commandline.Session, c dlqChange,
) (agreed int64, err error) {
	q := question{verb: c.verb, first: "the oldest ", noun: "dead letter", rest: " of " + f.Queue}
	return askToChange(s, q, func() (n int64, more bool, err error) {
		err = f.letters(ctx, s, func(ctx context.Context, desk operate.DeadLetterDesk) error {
			counted, err := f.count(ctx, s, desk, c.selected(time.Now()))
			n, more = counted.GetCount(), counted.GetMore()
			for _, to := range counted.GetDestinations() {
				if c.action == operate.Replay {
					fmt.Fprintln(s.Err, escape.Line(destinationLine(to)))
				}
			}
			return err
		})
		return n, more, err
	})
}

// record logs a direct change with a reason: neither the broker nor a coordinator keeps a record.
func (f *dlqChangeFlags) record(s *commandline.Session, c dlqChange, n int64) {
	if !f.Direct || f.Reason == "" || n == 0 {
		return
	}
	slog.New(slog.NewTextHandler(s.Err, nil)).Info("dead letters "+c.done, "count", n, "queue", f.Queue, "by", operator(),
		"reason", f.Reason, "letters", cmp.Or(strings.Join(c.typed, " "), letterWords(f.DeadLetterText), "all"))
}

// letterWords describe a filter by its flags.
func letterWords(f operate.DeadLetterText) string {
	var words []string
	for _, part := range []struct{ name, value string }{
		{"producer", f.Producer},
		{"consumer", f.Consumer},
		{"exchange", f.Exchange},
		{"cause", f.Cause},
		{"older-than", f.OlderThan},
	} {
		if part.value != "" {
			words = append(words, fmt.Sprintf("--%s=%q", part.name, part.value))
		}
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
func (f *dlqChangeFlags) printResult(s *commandline.Session, done string, n int64, more bool) error {
	return s.PrintDocument(f.Output, map[string]any{done: n, "more": more}, func() [][]string {
		return [][]string{{fmt.Sprintf("%s %d%s", done, n, map[bool]string{true: "; more may match: run it again"}[more])}}
	})
}

// absent says that some of the named letters do not exist; nil where all exist.
func (f *dlqChangeFlags) absent(c dlqChange, found int64) error {
	missing := int64(len(c.names)) - found
	if missing <= 0 {
		return nil
	}
	return commandline.NotFoundError{
		Err: fmt.Errorf("%d of the %d named are not in %s: %w", missing, len(c.names), f.Queue, halfmsg.ErrNoDeadLetter),
	}
}
