package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type auditCommand struct {
	adminFlags
	Since   string `help:"Only the records since then: an age such as 1h or 7d, or a time of UTC such as 02:10 or 2026-11-29 02:10." placeholder:"WHEN"`
	By      string `help:"Only records whose caller has this text in its name or address." placeholder:"TEXT"`
	Action  string `help:"Only records with this text in their action: retry, discard, replay, replay_dead_letters, discard_dead_letters, login, logout, reload, token, ask_producer, or a refused method." placeholder:"TEXT"`
	Refused bool   `help:"Only calls that were refused."`
	Failed  bool   `help:"Only changes that failed, or whose outcome is unknown."`
	Limit   int    `default:"100" help:"How many at most, the newest."`
	Follow  bool   `short:"f" help:"Print new records as they come, until interrupted; with --output json a document a line."`
}

// Help returns the text below the usage in --help.
func (c *auditCommand) Help() string {
	return `audit prints what operators changed through the coordinators, and which calls were refused: when, who, from
where, what, with which result, and why. Redis keeps about the newest 10,000 of each; the log has all.
Equal refusals of ten seconds are one record with a count. msghandler dlq --direct works on the broker itself, with the
rights of its URL: its changes are in its own output, and in no record.`
}

// auditRecord is a record in --output json. The names of its fields are part of the product.
type auditRecord struct {
	ID       string     `json:"id"`
	Time     *time.Time `json:"time"`
	LastTime *time.Time `json:"last_time,omitempty"`
	By       string     `json:"by,omitempty"`
	Kind     string     `json:"kind,omitempty"`
	From     string     `json:"from,omitempty"`
	Via      string     `json:"via,omitempty"`
	Action   string     `json:"action"`
	Producer string     `json:"producer,omitempty"`
	Names    []string   `json:"names,omitempty"`
	Filter   string     `json:"filter,omitempty"`
	// Destinations are where a replay of dead letters published them.
	Destinations []string `json:"destinations,omitempty"`
	Count        int64    `json:"count"`
	Reason       string   `json:"reason,omitempty"`
	Result       string   `json:"result"`
	Refusal      string   `json:"refusal,omitempty"`
	Cause        string   `json:"cause,omitempty"`
	Instance     string   `json:"instance,omitempty"`
}

func newAuditRecord(r *adminv1.AuditRecord) auditRecord {
	return auditRecord{
		ID: r.GetId(), Time: moment(r.GetTime()), LastTime: moment(r.GetLastTime()), By: r.GetActor(),
		Kind: operate.Word(r.GetIdentityKind()), From: r.GetAddress(), Via: operate.Word(r.GetChannel()),
		Action: actionOf(r), Producer: r.GetProducer(), Names: r.GetNames(), Filter: r.GetFilter(),
		Destinations: r.GetDestinations(), Count: r.GetCount(), Reason: r.GetReason(),
		Result: operate.Word(r.GetResult()), Refusal: operate.Word(r.GetRefusal()), Cause: r.GetCause(),
		Instance: r.GetInstance(),
	}
}

// actionOf is what was done, or the method of a refused call.
func actionOf(r *adminv1.AuditRecord) string {
	return cmp.Or(operate.Word(r.GetAction()), r.GetMethod())
}

// Run prints records: the newest first, or with --follow in the order in which they came.
func (c *auditCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := c.check(); err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	if c.Follow {
		return c.follow(ctx, s, a)
	}
	records, more, err := c.newest(ctx, a, c.Limit, func(string) bool { return false })
	if err != nil {
		return err
	}
	document := make([]auditRecord, len(records))
	for i, r := range records {
		document[i] = newAuditRecord(r)
	}
	err = s.PrintDocument(c.Output, map[string]any{"records": document, "more": more}, func() [][]string {
		return auditRows(records)
	})
	return errors.Join(err, cut(s, c.Output, c.Limit, more))
}

func (c *auditCommand) check() error {
	switch {
	case c.Limit < 1:
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: a list has at least one line", c.Limit)}
	case c.Refused && c.Failed:
		return commandline.UsageError{Err: errors.New("--refused and --failed exclude each other: a record has one result")}
	case c.Follow && c.Output != commandline.OutputTable && c.Output != commandline.OutputJSON:
		return commandline.UsageError{Err: errors.New("--follow prints a table or, with --output json, a document a line")}
	}
	return nil
}

// newest reads records, the newest first, up to a limit or to a page with a known record.
func (c *auditCommand) newest(
	ctx context.Context, a *admin, limit int, known func(id string) bool,
) (records []*adminv1.AuditRecord, more bool, err error) {
	request := &adminv1.ListAuditRequest{ActorContains: c.By, ActionContains: c.Action}
	switch {
	case c.Refused:
		request.Result = adminv1.AuditResult_AUDIT_RESULT_REFUSED
	case c.Failed:
		request.Result = adminv1.AuditResult_AUDIT_RESULT_FAILED
	}
	now := time.Now()
	since, _, err := operate.ParseRange(c.Since, "", now)
	if err != nil {
		return nil, false, wrongText(err)
	}
	if !since.IsZero() {
		request.MaxAge = durationpb.New(now.Sub(since))
	}
	request.PageSize = int32(min(c.Limit, maxPage)) //nolint:gosec // at most maxPage
	for len(records) < limit {
		response, err := a.client.ListAudit(ctx, request)
		if err != nil {
			return nil, false, err
		}
		met := false
		for _, r := range response.GetRecords() {
			if known(r.GetId()) {
				met = true
				continue
			}
			records = append(records, r)
		}
		request.PageToken = response.GetNextPageToken()
		if met || request.GetPageToken() == "" {
			return records[:min(len(records), limit)], len(records) > limit, nil
		}
	}
	return records[:limit], true, nil
}

const (
	// followPause is the pause between two looks at the newest records.
	followPause = time.Second
	// maxNew bounds the records of a look: a coordinator makes some twenty a second at most.
	maxNew = 10_000
)

// follow prints the records so far, and then each new record, until an interrupt.
func (c *auditCommand) follow(ctx context.Context, s *commandline.Session, a *admin) error {
	ctx, stop := commandline.Interruptible(ctx)
	defer stop()
	printed := map[string]bool{}
	for limit := c.Limit; ; limit = maxNew {
		seen := map[string]bool{} // what was printed before is on the first page of the next look, too
		records, _, err := c.newest(ctx, a, limit, func(id string) bool {
			seen[id] = true
			return printed[id]
		})
		printed = seen
		for _, r := range slices.Backward(records) {
			err = errors.Join(err, c.printLine(s, r))
		}
		if ctx.Err() != nil {
			return nil // an interrupt ends the command without an error
		}
		if err != nil {
			return err
		}
		_ = backoff.Sleep(ctx, followPause) // the next look sees whether the context has ended
	}
}

func (c *auditCommand) printLine(s *commandline.Session, r *adminv1.AuditRecord) error {
	if c.Output == commandline.OutputJSON {
		return s.PrintJSONLine(newAuditRecord(r))
	}
	_, err := fmt.Fprintln(s.Out, escape.Line(strings.Join(auditRow(r), "  ")))
	return err
}

var auditHeader = []string{"TIME (UTC)", "BY", "FROM", "ACTION", "RESULT", "CONCERNS", "WHY"}

func auditRows(records []*adminv1.AuditRecord) [][]string {
	if len(records) == 0 {
		return [][]string{{"no records"}}
	}
	rows := [][]string{slices.Clone(auditHeader)}
	for _, r := range records {
		rows = append(rows, auditRow(r))
	}
	return rows
}

// auditRow is a record in the columns of a table. An operator's reason and the cause of a failure both say why.
func auditRow(r *adminv1.AuditRecord) []string {
	why := r.GetReason() + "; " + r.GetCause()
	return []string{
		clock(r.GetTime()), cmp.Or(r.GetActor(), operate.Word(r.GetIdentityKind()), "-"),
		cmp.Or(strings.TrimSpace(r.GetAddress()+" "+operate.Word(r.GetChannel())), "-"), path.Base(actionOf(r)),
		operate.Word(r.GetResult()), concerns(r),
		cmp.Or(strings.Trim(why, "; "), "-"),
	}
}

// concerns says which messages a record is about, or how many refused calls.
func concerns(r *adminv1.AuditRecord) string {
	which := strings.TrimSpace(r.GetFilter() + " " + strings.Join(r.GetDestinations(), "; "))
	switch names := r.GetNames(); {
	case r.GetResult() == adminv1.AuditResult_AUDIT_RESULT_REFUSED:
		return strings.TrimSpace(amount(r.GetCount(), "call") + " " + r.GetProducer())
	case len(names) == 0:
		return cmp.Or(which, "-")
	case r.GetCount() > 1:
		return strings.TrimSpace(fmt.Sprintf("%s and %d more %s", names[0], r.GetCount()-1, which))
	case len(r.GetDestinations()) > 0:
		return names[0] + " " + which
	default:
		return names[0]
	}
}
