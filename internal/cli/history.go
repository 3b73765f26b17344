package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type historyCommand struct {
	adminFlags
	operate.FinishedText
	watchFlags
	Receipts bool `help:"The receipts, also where there is an archive."`
	Limit    int  `default:"100" help:"How many at most, the newest."`
}

// Help returns the text below the usage in --help.
func (c *historyCommand) Help() string {
	return `history prints messages that are finished, the newest first. A time of day is the latest one, and of --until
the first one after --since where the latest is before it. With archive.retention coordinators keep them with their
content; show prints one of them, and replay publishes it again. Without an archive only the receipts are left,
for done.retention: name, end and time. To find receipts, Redis looks at each of its keys.`
}

// finished is a finished message in --output json. The names of its fields are part of the product.
type finished struct {
	Producer    string            `json:"producer"`
	ID          string            `json:"id"`
	State       string            `json:"state"`
	FinishedAt  *time.Time        `json:"finished_at"`
	CreatedAt   *time.Time        `json:"created_at,omitempty"`
	CommittedAt *time.Time        `json:"committed_at,omitempty"`
	Copies      int32             `json:"copies,omitempty"`
	Broker      string            `json:"broker,omitempty"`
	Exchange    string            `json:"exchange,omitempty"`
	RoutingKey  string            `json:"routing_key,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Entry       string            `json:"entry,omitempty"`
	Replayable  bool              `json:"replayable"`
	BodyLeftOut bool              `json:"body_left_out,omitempty"`
	Damaged     string            `json:"damaged,omitempty"`
	// Body holds a body of text, BodyBase64 every other body; only show has them.
	Body       string `json:"body,omitempty"`
	BodyBase64 string `json:"body_base64,omitempty"`
}

func newFinished(f *adminv1.FinishedMessage) finished {
	m := f.GetMessage()
	out := finished{
		Producer: f.GetProducer(), ID: m.GetId(), State: operate.Word(f.GetEnding()), FinishedAt: moment(f.GetFinishTime()),
		CreatedAt: moment(f.GetCreateTime()), CommittedAt: moment(f.GetCommitTime()), Copies: f.GetCopies(),
		Broker: m.GetBroker(), Exchange: m.GetExchange(), RoutingKey: m.GetRoutingKey(), ContentType: m.GetContentType(),
		Headers: m.GetHeaders(), Entry: f.GetEntry(), Replayable: f.GetReplayable(), BodyLeftOut: f.GetBodyOmitted(),
		Damaged: f.GetDamage(),
	}
	out.Body, out.BodyBase64 = documentBody(m.GetBody())
	return out
}

// Run prints finished messages.
func (c *historyCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Limit < 1 {
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: a list has at least one line", c.Limit)}
	}
	return c.runAsking(ctx, s, &c.adminFlags, c.once)
}

// once prints finished messages. Ages are those at the call.
func (c *historyCommand) once(ctx context.Context, s *commandline.Session, a *admin) error {
	filter, err := c.Filter(time.Now())
	if err != nil {
		return wrongText(err)
	}
	found, first, more, err := c.newest(ctx, a, filter, s.Progress())
	if err != nil {
		return err
	}
	archive := first.GetFromArchive()
	messages := make([]finished, len(found))
	for i, f := range found {
		messages[i] = newFinished(f)
	}
	document := map[string]any{
		"messages": messages, "archive": archive, "more": more, "archived": first.GetArchiveSize(),
		"oldest_at": moment(first.GetArchiveOldestTime()), "not_archived": first.GetArchiveDropped(),
	}
	err = s.PrintDocument(c.Output, document, func() [][]string { return finishedRows(found, archive, time.Now()) })
	if first.GetArchiveDropped() > 0 && c.Output == commandline.OutputTable {
		_, _ = fmt.Fprintf(s.Err, "msghandler: %d messages ended lately without being archived: Redis was nearly full\n",
			first.GetArchiveDropped())
	}
	return errors.Join(err, cut(s, c.Output, c.Limit, more))
}

// newest reads the newest messages up to the limit, and gives the first page, which tells of the archive. Receipts come
// in no order, so all of them are read.
func (c *historyCommand) newest(
	ctx context.Context, a *admin, filter *adminv1.FinishedFilter, far *commandline.Progress,
) (found []*adminv1.FinishedMessage, first *adminv1.ListFinishedResponse, more bool, err error) {
	defer far.End()
	request := &adminv1.ListFinishedRequest{
		Filter: filter, ReceiptsOnly: c.Receipts, PageSize: int32(min(c.Limit, maxPage)), //nolint:gosec // at most maxPage
	}
	for {
		response, err := a.client.ListFinished(ctx, request)
		if err != nil {
			return nil, nil, false, err
		}
		first, found = cmp.Or(first, response), append(found, response.GetMessages()...)
		slices.SortStableFunc(found, func(x, y *adminv1.FinishedMessage) int {
			return y.GetFinishTime().AsTime().Compare(x.GetFinishTime().AsTime())
		})
		if len(found) > c.Limit {
			found, more = found[:c.Limit], true
		}
		far.Update("found %d finished messages", len(found))
		request.PageToken = response.GetNextPageToken()
		if request.GetPageToken() == "" {
			return found, first, more, nil
		}
		if first.GetFromArchive() && len(found) == c.Limit {
			return found, first, true, nil
		}
	}
}

// finishedRows are messages for people. Receipts have no content.
func finishedRows(found []*adminv1.FinishedMessage, archive bool, now time.Time) [][]string {
	if len(found) == 0 && !archive {
		return [][]string{{"no finished messages; without archive.retention each is forgotten after done.retention"}}
	}
	if len(found) == 0 {
		return [][]string{{"no finished messages"}}
	}
	rows := [][]string{{"MESSAGE", "STATE", "FINISHED"}}
	if archive {
		rows[0] = append(rows[0], "TOOK", "COPIES", "EXCHANGE", "ROUTING KEY", "ENTRY")
	}
	for _, f := range found {
		m := f.GetMessage()
		row := []string{f.GetProducer() + "/" + m.GetId(), operate.Word(f.GetEnding()), ageOf(f.GetFinishTime(), now)}
		if archive {
			took := operate.Duration(f.GetFinishTime().AsTime().Sub(f.GetCreateTime().AsTime()))
			row = append(row, took, strconv.Itoa(int(f.GetCopies())), m.GetExchange(), m.GetRoutingKey(), f.GetEntry())
		}
		rows = append(rows, row)
	}
	return rows
}

// archived reads the entry of a message; nil where there is none. An archive that cannot be read is an error: without
// the error, show would say that the message was never sent.
func (a *admin) archived(
	ctx context.Context, name *adminv1.MessageName,
) (*adminv1.FinishedMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	response, err := adminv1.NewAdminServiceClient(a.ClientConn).GetFinished(ctx, &adminv1.GetFinishedRequest{
		Producer: name.GetProducer(), Id: name.GetId(),
	})
	switch status.Code(err) {
	case codes.NotFound, codes.FailedPrecondition: // no entry, or no archive
		return nil, nil
	}
	return response.GetMessage(), a.explain(err)
}

// showArchived prints a message of the archive.
func showArchived(s *commandline.Session, output string, f *adminv1.FinishedMessage) error {
	err := s.PrintDocument(output, newFinished(f), func() [][]string { return describeFinished(f, time.Now()) })
	return errors.Join(err, printBody(s, output, f.GetMessage().GetBody()))
}

// describeFinished gives a message of the archive as lines of name and value.
func describeFinished(f *adminv1.FinishedMessage, now time.Time) [][]string {
	m := newFinished(f)
	lines := [][]string{{"message", m.Producer + "/" + m.ID}, {"state", m.State}}
	add := func(name, value string) {
		if value != "" && value != "-" {
			lines = append(lines, []string{name, value})
		}
	}
	add("finished", ageOf(f.GetFinishTime(), now))
	add("kept", "in the archive, for archive.retention")
	add("entry", m.Entry)
	add("broker", m.Broker)
	add("exchange", cmp.Or(m.Exchange, "(the default exchange)"))
	add("routing key", m.RoutingKey)
	add("content type", m.ContentType)
	add("created", ageOf(f.GetCreateTime(), now))
	add("committed", ageOf(f.GetCommitTime(), now))
	add("copies", strconv.Itoa(int(m.Copies)))
	for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
		add("header "+key, m.Headers[key])
	}
	add("damaged", m.Damaged)
	if m.BodyLeftOut {
		add("body", "left out: larger than archive.max_body")
	} else {
		add("body", sizeOf(f.GetMessage()))
	}
	replay := "no: its transaction did not commit, or its body is missing"
	if m.Replayable {
		replay = "msghandler replay " + m.Producer + "/" + m.ID
	}
	add("replay", replay)
	return lines
}
