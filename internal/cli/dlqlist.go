package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type dlqListCommand struct {
	dlqFlags
	operate.DeadLetterText
	watchFlags
	Limit int `default:"100" help:"How many at most."`
}

// Run prints dead letters.
func (c *dlqListCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Limit < 1 {
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: a list has at least one line", c.Limit)}
	}
	filter, err := c.Filter()
	if err != nil {
		return wrongText(err)
	}
	return c.run(ctx, s, c.Output, func(ctx context.Context, s *commandline.Session) error {
		return c.once(ctx, s, filter)
	})
}

// once prints dead letters.
func (c *dlqListCommand) once(ctx context.Context, s *commandline.Session, filter *adminv1.DeadLetterFilter) error {
	return c.letters(ctx, s, func(ctx context.Context, desk operate.DeadLetterDesk) error {
		listed, note, more, err := c.pages(ctx, s, desk, filter)
		if err != nil {
			return err
		}
		document := map[string]any{"letters": listed, "more": more || note != ""}
		err = s.PrintDocument(c.Output, document, func() [][]string { return letterRows(listed, time.Now()) })
		if note != "" && c.Output == commandline.OutputTable {
			s.Note("msghandler: %s", note)
		}
		return errors.Join(err, cut(s, c.Output, c.Limit, more))
	})
}

// pages reads up to --limit letters, page by page, and says whether there may be more, or why the list ends early.
func (c *dlqListCommand) pages(
	ctx context.Context, s *commandline.Session, desk operate.DeadLetterDesk, filter *adminv1.DeadLetterFilter,
) (listed []letter, note string, more bool, err error) {
	far := s.Progress()
	defer far.End()
	listed = []letter{} // in a document, no letters are a list
	most, _ := c.most()
	request := &adminv1.ListDeadLettersRequest{Queue: c.Queue, Filter: filter}
	for len(listed) < c.Limit {
		request.PageSize = int32(min(c.Limit-len(listed), most)) //nolint:gosec // at most MaxInt32
		page, err := desk.ListDeadLetters(ctx, request)
		if err != nil {
			return nil, "", false, err
		}
		for _, l := range page.GetLetters() {
			listed = append(listed, newLetter(l))
		}
		far.Update("found %d dead letters", len(listed))
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			return listed, page.GetNote(), false, nil
		}
	}
	return listed, "", true, nil
}

func letterRows(listed []letter, now time.Time) [][]string {
	if len(listed) == 0 {
		return [][]string{{"no dead letters"}}
	}
	rows := [][]string{{"MESSAGE", "QUEUE", "AGE", "RETRIES", "EXCHANGE", "ROUTING KEY", "REASON"}}
	for _, l := range listed {
		rows = append(rows, []string{
			l.Producer + "/" + l.ID, l.Queue, ageAt(l.WaitingSince, now), strconv.Itoa(int(l.Retries)), l.Exchange,
			l.RoutingKey, shorten(l.Reason),
		})
	}
	return rows
}

type dlqCountCommand struct {
	dlqFlags
	operate.DeadLetterText
	watchFlags
}

// Help returns the text below the usage in --help.
func (c *dlqCountCommand) Help() string {
	return `The command looks at every letter, as dlq list does. Causes that differ by ids, numbers and addresses
alone are one group, with the cause of one of its letters.`
}

// Run prints how many dead letters there are, by group.
func (c *dlqCountCommand) Run(ctx context.Context, s *commandline.Session) error {
	filter, err := c.Filter()
	if err != nil {
		return wrongText(err)
	}
	return c.run(ctx, s, c.Output, func(ctx context.Context, s *commandline.Session) error {
		return c.once(ctx, s, filter)
	})
}

// once prints how many dead letters there are, by group.
func (c *dlqCountCommand) once(ctx context.Context, s *commandline.Session, filter *adminv1.DeadLetterFilter) error {
	return c.letters(ctx, s, func(ctx context.Context, desk operate.DeadLetterDesk) error {
		counted, err := c.count(ctx, s, desk, &adminv1.DeadLetterSelection{Filter: filter})
		if err != nil {
			return err
		}
		document := newLetterCount(counted)
		return s.PrintDocument(c.Output, document, func() [][]string {
			now, sum := time.Now(), "in all"
			if document.More {
				sum = "in all, and there may be more"
			}
			rows := [][]string{{"LETTERS", "OLDEST", "CONSUMER", "EXCHANGE", "ROUTING KEY", "CAUSE"}}
			rows = append(rows, document.groupRows(now)...)
			return append(rows, []string{
				strconv.FormatInt(document.Letters, 10), ageAt(document.WaitingSince, now), "", "", "", sum,
			})
		})
	})
}

// count counts the letters of a selection by group and by destination.
func (f *dlqFlags) count(
	ctx context.Context, s *commandline.Session, desk operate.DeadLetterDesk, selected *adminv1.DeadLetterSelection,
) (*adminv1.CountDeadLettersResponse, error) {
	defer s.Progress().During("looking at dead letters")()
	return desk.CountDeadLetters(ctx, &adminv1.CountDeadLettersRequest{Queue: f.Queue, Selection: selected})
}

// letterCount is a count in --output json. The names of its fields are part of the product.
type letterCount struct {
	Letters      int64         `json:"letters"`
	More         bool          `json:"more"`
	WaitingSince *time.Time    `json:"waiting_since,omitempty"`
	Groups       []letterGroup `json:"groups"`
}

type letterGroup struct {
	Queue        string     `json:"queue"`
	Exchange     string     `json:"exchange"`
	RoutingKey   string     `json:"routing_key"`
	Cause        string     `json:"cause"`
	Letters      int64      `json:"letters"`
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
}

func newLetterCount(counted *adminv1.CountDeadLettersResponse) letterCount {
	out := letterCount{
		Letters: counted.GetCount(), More: counted.GetMore(), WaitingSince: moment(counted.GetOldestTime()),
		Groups: []letterGroup{},
	}
	for _, g := range counted.GetGroups() {
		out.Groups = append(out.Groups, letterGroup{
			Queue: g.GetConsumer(), Exchange: g.GetExchange(), RoutingKey: g.GetRoutingKey(), Cause: g.GetCause(),
			Letters: g.GetCount(), WaitingSince: moment(g.GetOldestTime()),
		})
	}
	return out
}

func (c *letterCount) groupRows(now time.Time) (rows [][]string) {
	for _, g := range c.Groups {
		rows = append(rows, []string{
			strconv.FormatInt(g.Letters, 10), ageAt(g.WaitingSince, now), g.Queue, g.Exchange, g.RoutingKey,
			shorten(g.Cause),
		})
	}
	return rows
}
