package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type replayCommand struct {
	adminFlags
	Names []string `arg:"" optional:"" help:"The messages, such as orders/1001; - reads them from standard input, one a line." name:"PRODUCER/ID"`
	operate.FinishedText
	NewIDSuffix string `name:"new-id-suffix" help:"Publish under a new id, with this text behind the old one. Without it consumers that remember the id drop the copy." placeholder:"TEXT"`
	Limit       int    `default:"1000" help:"With a filter: how many at most; 0 for all."`
	Yes         bool   `short:"y" help:"Do not ask."`
	DryRun      bool   `short:"n" help:"Change nothing; say how many would be replayed."`
	Reason      string `help:"Why, for the audit." placeholder:"TEXT"`
}

// Help returns the text below the usage in --help.
func (c *replayCommand) Help() string {
	return `replay publishes finished messages again, from the archive (archive.retention). Only messages whose transaction
committed can be replayed. A message is published under its own id, with msghandler-attempt above 1: a consumer that has
lost the effect takes it, and one that remembers the id drops it as a duplicate. --new-id-suffix makes it a new message
for every consumer. Named messages are replayed at once, each from its newest entry. Messages of a filter are counted
first, and the command asks. A message that is unfinished again is left alone.`
}

// Run replays messages.
func (c *replayCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := c.check(); err != nil {
		return err
	}
	names, err := typedNames(s, c.Names, c.Yes || c.DryRun)
	if err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	if len(names) > 0 {
		return c.byName(ctx, s, a, names)
	}
	return c.byFilter(ctx, s, a)
}

// check refuses impossible flags.
func (c *replayCommand) check() error {
	switch {
	case len(c.Names) > 0 && c.FinishedText != operate.FinishedText{}:
		return commandline.UsageError{Err: errors.New("give either names or a filter such as --exchange, not both")}
	case len(c.Names) == 0 && c.FinishedText == operate.FinishedText{}:
		return commandline.UsageError{Err: errors.New("which messages? Name them (orders/1001), " +
			"give - to read names from standard input, or give a filter such as --since 1h")}
	case c.Limit < 0:
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: at least one, or 0 for all", c.Limit)}
	}
	return nil
}

// byName replays the named messages, and says why a message could not be replayed.
func (c *replayCommand) byName(
	ctx context.Context, s *commandline.Session, a *admin, names []*adminv1.MessageName,
) error {
	var replayed int64
	var failures []error
	for part := range slices.Chunk(names, maxPage) {
		selection := &adminv1.FinishedSelection{}
		for _, n := range part {
			selection.Names = append(selection.Names, &adminv1.FinishedName{Producer: n.GetProducer(), Id: n.GetId()})
		}
		response, err := a.client.ReplayMessages(ctx, &adminv1.ReplayMessagesRequest{
			Selection: selection, NewIdSuffix: c.NewIDSuffix, Reason: c.Reason, DryRun: c.DryRun,
		})
		if err != nil {
			failures = append(failures, err)
			break
		}
		replayed += response.GetChanged()
		failures = append(failures, a.refusals(part, response.GetOutcomes())...)
	}
	if replayed == 0 && len(failures) > 0 {
		return errors.Join(failures...)
	}
	return errors.Join(c.print(s, replayed, 0, false), errors.Join(failures...))
}

// byFilter replays the messages that match, after asking. Messages that end meanwhile are left out.
func (c *replayCommand) byFilter(ctx context.Context, s *commandline.Session, a *admin) error {
	now := time.Now()
	filter, err := c.Filter(now)
	if err != nil {
		return wrongText(err)
	}
	filter = operate.CountedFinished(filter, now)
	limit := atMost(c.Limit)
	if !c.Yes && !c.DryRun {
		counting := *c
		counting.DryRun = true
		q := question{verb: "Replay", first: "the newest ", noun: "finished message"}
		limit, err = askToChange(s, q, func() (count int64, more bool, err error) {
			count, _, more, err = counting.matching(ctx, s, a, filter, limit)
			return count, more, err
		})
		if err != nil {
			return err
		}
	}
	replayed, skipped, more, err := c.matching(ctx, s, a, filter, limit)
	if err != nil && replayed == 0 {
		return err
	}
	return errors.Join(c.print(s, replayed, skipped, more), err)
}

// matching replays up to limit messages that match, or counts them in a dry run, page after page.
func (c *replayCommand) matching(
	ctx context.Context, s *commandline.Session, a *admin, filter *adminv1.FinishedFilter, limit int64,
) (replayed, skipped int64, more bool, err error) {
	far := s.Progress()
	defer far.End()
	request := &adminv1.ReplayMessagesRequest{
		Selection: &adminv1.FinishedSelection{Filter: filter}, NewIdSuffix: c.NewIDSuffix, Reason: c.Reason, DryRun: c.DryRun,
	}
	replayed, next, err := operate.Walk(limit, "", func(limit int64, token string) (operate.MessagesAnswer, error) {
		request.Limit, request.PageToken = int32(min(limit, maxPage)), token //nolint:gosec // at most maxPage
		response, err := a.client.ReplayMessages(ctx, request)
		skipped += response.GetSkipped()
		return response, err
	}, func(replayed int64) bool {
		far.Update("%d messages", replayed)
		return true
	})
	return replayed, skipped, next != "", err
}

func (c *replayCommand) print(s *commandline.Session, replayed, skipped int64, more bool) error {
	document := map[string]any{"replayed": replayed, "skipped": skipped, "dry_run": c.DryRun, "more": more}
	return s.PrintDocument(c.Output, document, func() [][]string {
		text := "replayed " + amount(replayed, "message")
		if c.DryRun {
			text = "would replay " + amount(replayed, "message")
		}
		if skipped > 0 {
			text += fmt.Sprintf("; %d cannot be replayed", skipped)
		}
		if more {
			text += "; more match"
		}
		return [][]string{{text}}
	})
}
