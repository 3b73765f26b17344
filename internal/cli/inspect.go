package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

type listCommand struct {
	serverFlags
	Output string `short:"o" default:"table" enum:"table,json,yaml,name" help:"table for people, json or yaml for programs; name: only the names, one a line, for retry - and discard -."`
	operate.MessageText
	watchFlags
	Limit int  `default:"100" help:"How many at most."`
	Group bool `help:"How many messages each producer, exchange and cause has, in place of single messages."`
}

// Run prints messages, for each state the oldest first.
func (c *listCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Limit < 1 {
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: a list has at least one line", c.Limit)}
	}
	if c.Group && c.Output == commandline.OutputName {
		return commandline.UsageError{
			Err: errors.New("--group and --output=name: groups have no names; give --output=name with the filters of a group"),
		}
	}
	filter, err := readFilter(c.MessageText)
	if err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	return c.run(ctx, s, c.Output, func(ctx context.Context, s *commandline.Session) error {
		if c.Group {
			return c.groups(ctx, s, a, filter)
		}
		return c.single(ctx, s, a, filter)
	})
}

// single prints single messages.
func (c *listCommand) single(
	ctx context.Context, s *commandline.Session, a *admin, filter *adminv1.MessageFilter,
) error {
	far := s.Progress()
	var records []*adminv1.MessageRecord
	more := false
	for _, state := range statesOf(filter) {
		if len(records) == c.Limit {
			more = true // this state was not looked at
			break
		}
		of := proto.CloneOf(filter)
		of.State = state
		found, left, err := a.list(ctx, of, c.Limit-len(records), far)
		if err != nil {
			return err
		}
		records, more = append(records, found...), left
	}
	far.End()
	return errors.Join(c.print(s, records, more), cut(s, c.Output, c.Limit, more))
}

// cut says on standard error, where it is in no program's way, that a table ended at --limit; documents say it
// themselves.
func cut(s *commandline.Session, output string, limit int, more bool) error {
	if !more || output == commandline.OutputJSON || output == commandline.OutputYAML {
		return nil
	}
	_, err := fmt.Fprintf(s.Err, "msghandler: this is the end of --limit=%d, and there may be more; raise it\n", limit)
	return err
}

func (c *listCommand) print(s *commandline.Session, records []*adminv1.MessageRecord, more bool) error {
	messages := make([]record, len(records))
	for i, r := range records {
		messages[i] = newRecord(r)
	}
	return s.PrintDocument(c.Output, map[string]any{"messages": messages, "more": more}, func() [][]string {
		if c.Output == commandline.OutputName {
			return nameRows(messages)
		}
		return messageRows(records, time.Now())
	})
}

func nameRows(messages []record) [][]string {
	rows := make([][]string, len(messages))
	for i, m := range messages {
		rows[i] = []string{m.name()}
	}
	return rows
}

var listHeader = []string{"MESSAGE", "STATE", "CREATED", "DUE", "ATTEMPTS", "EXCHANGE", "ROUTING KEY", "LAST ERROR"}

func messageRows(records []*adminv1.MessageRecord, now time.Time) [][]string {
	if len(records) == 0 {
		return [][]string{{"no messages"}}
	}
	rows := [][]string{slices.Clone(listHeader)}
	for _, r := range records {
		m := newRecord(r)
		rows = append(rows, []string{
			m.name(), m.State, ageOf(r.GetCreateTime(), now), dueOf(r, now),
			strconv.Itoa(int(m.ConfirmAttempts + m.PublishAttempts)), m.Exchange, m.RoutingKey, shorten(m.LastError),
		})
	}
	return rows
}

// dueOf says when a message is worked on next; "-" where nothing happens until an operator acts.
func dueOf(r *adminv1.MessageRecord, now time.Time) string {
	switch r.GetState() { //nolint:exhaustive // the others are due by themselves
	case msghandlerv1.State_STATE_ABANDONED, msghandlerv1.State_STATE_DEAD:
		return "-"
	}
	if r.GetParked() {
		return "with its broker"
	}
	return ageOf(r.GetDueTime(), now)
}

// shorten leaves out the middle of an error, so that a line stays a line: an error begins with what was tried and ends
// with why it failed. An answer code of the broker, such as NOT_FOUND, stays. show has the whole.
func shorten(s string) string {
	const most = 59
	short := middleCut(s, most)
	if at := answerCode.FindStringIndex(s); at != nil && !strings.Contains(short, s[at[0]:at[1]]) {
		return middleCut("..."+s[at[0]:], most)
	}
	return short
}

// middleCut leaves out the middle of a text that has more characters than fit.
func middleCut(text string, most int) string {
	const gap = "..."
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	left := (most - len(gap) + 1) / 2
	right := most - len(gap) - left
	return strings.TrimRight(string(runes[:left]), " ") + gap + string(runes[len(runes)-right:])
}

// answerCode is a code of capitals in an error, such as NO_ROUTE.
var answerCode = regexp.MustCompile(`\b[A-Z]{2,}(_[A-Z]+)+\b`)

type showCommand struct {
	adminFlags
	Name string `arg:"" help:"The message, such as orders/1001." name:"PRODUCER/ID"`
}

// Run prints a message.
func (c *showCommand) Run(ctx context.Context, s *commandline.Session) error {
	names, err := parseNames([]string{c.Name})
	if err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	request := &adminv1.GetMessageRequest{Producer: names[0].GetProducer(), Id: names[0].GetId()}
	response, err := a.client.GetMessage(ctx, request)
	var missing commandline.NotFoundError
	absent := errors.As(err, &missing)
	if absent || halfmsg.State(response.GetRecord().GetState()).Final() { //nolint:gosec // the values are the same
		f, err := a.archived(ctx, names[0])
		if err != nil {
			return err
		}
		if f != nil {
			return showArchived(s, c.Output, f)
		}
	}
	if absent {
		return fmt.Errorf("%s: %w: it was never sent, was discarded, or has been finished for longer than done.retention",
			c.Name, err)
	}
	if err != nil {
		return err
	}
	m := response.GetRecord()
	rows := func() [][]string {
		now := time.Now()
		return append(describe(m, now), timelineRows(m.GetEvents(), now)...)
	}
	if err := s.PrintDocument(c.Output, newRecord(m), rows); err != nil {
		return err
	}
	return printBody(s, c.Output, m.GetMessage().GetBody())
}
