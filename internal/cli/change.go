package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// selection names the messages to change: by name, or by a filter.
type selection struct {
	Names []string `arg:"" optional:"" help:"The messages, such as orders/1001; - reads them from standard input, one a line." name:"PRODUCER/ID"`
	operate.MessageText
	Limit  int    `default:"1000" help:"With --state: how many at most; 0 for all."`
	Yes    bool   `short:"y" help:"Do not ask."`
	DryRun bool   `short:"n" help:"Change nothing; say how many would be changed."`
	Reason string `help:"Why, for the coordinator's log." placeholder:"TEXT"`
}

type retryCommand struct {
	adminFlags
	selection
}

// Run makes messages due now.
func (c *retryCommand) Run(ctx context.Context, s *commandline.Session) error {
	return change{
		adminFlags: c.adminFlags, selection: c.selection, action: operate.Retry, verb: "Retry", done: "retried",
	}.run(ctx, s)
}

// Help returns the text below the usage in --help.
func (c *retryCommand) Help() string {
	return `A pending message is confirmed at once, and a sendable message is published at once.
Named messages change at once. Messages of a filter are counted first, and the command asks. No more messages change
than were counted, and no message that was stored since; an older message that reached the state since may be among
them. With - as the name, the names are the first word of each line of standard input, such as a part of a list.`
}

type discardCommand struct {
	adminFlags
	selection
	MaybeCommitted bool `help:"Discard PENDING and ABANDONED messages without a question: their businesses may have committed."`
}

// Run removes messages for good.
func (c *discardCommand) Run(ctx context.Context, s *commandline.Session) error {
	return change{
		adminFlags: c.adminFlags, selection: c.selection, action: operate.Discard, verb: "Discard", done: "discarded",
		loses: !c.MaybeCommitted,
	}.run(ctx, s)
}

// Help returns the text below the usage in --help.
func (c *discardCommand) Help() string {
	return `A discarded message is gone; the coordinator logs it, with who and why.
The business of a PENDING or ABANDONED message may have committed. Then the message is lost, and the archive cannot
replay it; retry asks the producer instead. So the command counts such messages, and asks for their number. With --yes,
and without a terminal, it discards them only with --maybe-committed.
Named messages change at once. Messages of a filter are counted first, and the command asks. No more messages change
than were counted, and no message that was stored since; an older message that reached the state since may be among
them. With - as the name, the names are the first word of each line of standard input, such as a part of a list.`
}

// change is a retry or a discard.
type change struct {
	adminFlags
	selection
	action     operate.Action
	verb, done string
	// loses says that the operator has not yet agreed to lose messages whose businesses may have committed.
	loses bool
	// counted is when the messages were counted that the operator agreed to change; zero without a question.
	counted time.Time
}

func (c change) run(ctx context.Context, s *commandline.Session) error {
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

func (c change) check() error {
	switch {
	case len(c.Names) > 0 && c.MessageText != operate.MessageText{}:
		return commandline.UsageError{Err: errors.New("give either names or --state and what goes with it, not both")}
	case len(c.Names) == 0 && c.State == "":
		return commandline.UsageError{Err: errors.New("which messages? Name them (orders/1001), " +
			"give - to read names from standard input, or give --state")}
	case c.Limit < 0:
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: at least one, or 0 for all", c.Limit)}
	}
	return nil
}

// byName changes the named messages, and says why a message could not be changed.
func (c change) byName(ctx context.Context, s *commandline.Session, a *admin, names []*adminv1.MessageName) error {
	if c.loses && !c.DryRun {
		if err := c.agreeToLose(ctx, s, a, names); err != nil {
			return err
		}
	}
	var changed int64
	var failures []error
	far := s.Progress()
	for part := range slices.Chunk(names, maxPage) {
		got, err := operate.ChangeMessages(ctx, a.client, c.action, &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: part}, DryRun: c.DryRun, Reason: c.Reason,
		})
		if err != nil {
			failures = append(failures, err)
			break
		}
		changed += got.GetChanged()
		far.Update("%s %d of %d", c.done, changed, len(names))
		failures = append(failures, a.refusals(part, got.GetOutcomes())...)
	}
	far.End()
	if changed == 0 && len(failures) > 0 && c.Output == commandline.OutputTable { // programs read a document in any case
		return errors.Join(failures...)
	}
	return errors.Join(c.printResult(s, changed, false), errors.Join(failures...))
}

// refusals say why named messages were not changed.
func (a *admin) refusals(names []*adminv1.MessageName, outcomes []*msghandlerv1.Outcome) (failures []error) {
	for i, outcome := range outcomes {
		refusal := status.FromProto(&spb.Status{Code: outcome.GetCode(), Message: outcome.GetError()})
		if err := a.explain(refusal.Err()); err != nil {
			failures = append(failures, fmt.Errorf("%s/%s: %w", names[i].GetProducer(), names[i].GetId(), err))
		}
	}
	return failures
}

// atMost is the limit of a flag, where 0 means all.
func atMost(limit int) int64 {
	if limit == 0 {
		return math.MaxInt64
	}
	return int64(limit)
}

// byFilter changes the messages that match, after asking.
func (c change) byFilter(ctx context.Context, s *commandline.Session, a *admin) error {
	filter, err := readFilter(c.MessageText)
	if err != nil {
		return err
	}
	limit := atMost(c.Limit)
	if c.Yes && !c.DryRun && c.loses && mayBeCommitted(filter.GetState()) {
		return errMayLose
	}
	if !c.Yes && !c.DryRun {
		began := time.Now()
		if limit, err = c.askOperator(ctx, s, a, filter, limit); err != nil {
			return err
		}
		c.counted = began
	}
	changed, more, err := c.matching(ctx, s, a, filter, limit)
	if err != nil && (c.DryRun || changed == 0) {
		return err
	}
	return errors.Join(c.printResult(s, changed, more), err)
}

// matching changes up to limit messages that match, or counts them in a dry run, page after page. More says whether
// more may match than those, as far as the coordinator said before it failed.
func (c change) matching(
	ctx context.Context, s *commandline.Session, a *admin, filter *adminv1.MessageFilter, limit int64,
) (changed int64, more bool, err error) {
	done := c.done
	if c.DryRun {
		done = "counted"
	}
	selection := &adminv1.MessageSelection{Filter: filter}
	request := &adminv1.DiscardMessagesRequest{Selection: selection, Reason: c.Reason, DryRun: c.DryRun}
	far := s.Progress()
	defer far.End()
	changed, next, err := operate.Walk(limit, "", func(limit int64, token string) (operate.MessagesAnswer, error) {
		request.Limit, request.PageToken = int32(min(limit, maxPage)), token //nolint:gosec // at most maxPage
		if !c.counted.IsZero() {
			selection.Filter = operate.CountedMessages(filter, c.counted)
		}
		return operate.ChangeMessages(ctx, a.client, c.action, request)
	}, func(changed int64) bool {
		far.Update("%s %d %s messages", done, changed, stateName(filter.GetState()))
		return true
	})
	return changed, next != "", err
}

// askOperator counts up to limit messages that match and asks whether to go on.
func (c change) askOperator(
	ctx context.Context, s *commandline.Session, a *admin, filter *adminv1.MessageFilter, limit int64,
) (agreed int64, err error) {
	counting := c
	counting.DryRun = true
	q := question{
		verb: c.verb, first: "the first ", noun: stateName(filter.GetState()) + " message", rest: c.Words(),
		loses: c.loses && mayBeCommitted(filter.GetState()),
	}
	return askToChange(s, q, func() (int64, bool, error) { return counting.matching(ctx, s, a, filter, limit) })
}

// printResult prints the result, or the result that a real run would have.
func (c change) printResult(s *commandline.Session, changed int64, more bool) error {
	document := map[string]any{c.done: changed, "more": more}
	text := fmt.Sprintf("%s %d", c.done, changed)
	if c.DryRun {
		document["dry_run"] = true
		text = fmt.Sprintf("%d would be %s", changed, c.done)
	}
	if more {
		text += "; more match, run it again"
	}
	if more && c.Limit > 0 && changed >= int64(c.Limit) {
		text += " or raise --limit"
	}
	return s.PrintDocument(c.Output, document, func() [][]string { return [][]string{{text}} })
}
