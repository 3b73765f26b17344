package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

type statsCommand struct {
	adminFlags
}

// stateStats is one state of stats as --output json prints it.
type stateStats struct {
	State    string     `json:"state"`
	Count    int64      `json:"count"`
	OldestAt *time.Time `json:"oldest_at,omitempty"`
}

// Run prints how many messages stand in each state.
func (c *statsCommand) Run(ctx context.Context, s *session) error {
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	response, err := call(ctx, a, a.client.GetStats, &msghandlerv1.GetStatsRequest{})
	if err != nil {
		return err
	}
	if c.Output == outputJSON {
		states := []stateStats{}
		for _, st := range response.GetStates() {
			states = append(states, stateStats{stateName(st.GetState()), st.GetCount(), moment(st.GetOldestCreateTime())})
		}
		return s.printJSON(map[string]any{"states": states})
	}
	rows := [][]string{{"STATE", "COUNT", "OLDEST"}}
	for _, st := range response.GetStates() {
		rows = append(rows, []string{
			stateName(st.GetState()), strconv.FormatInt(st.GetCount(), 10), ageOf(st.GetOldestCreateTime(), time.Now()),
		})
	}
	return s.printTable(rows)
}

type listCommand struct {
	adminFlags
	State    string `help:"Only messages in this state: pending, sendable, abandoned, dead or acknowledged." placeholder:"STATE"`
	Producer string `help:"Only messages of this producer." placeholder:"NAME"`
	Limit    int    `default:"100" help:"How many at most."`
}

// Run prints messages, those of each state oldest first.
func (c *listCommand) Run(ctx context.Context, s *session) error {
	if c.Limit < 1 {
		return usageError{fmt.Errorf("--limit=%d: a list has at least one line", c.Limit)}
	}
	states := halfmsg.Kept()
	slices.Sort(states)
	if c.State != "" {
		state, err := parseState(c.State)
		if err != nil {
			return err
		}
		states = []halfmsg.State{state}
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	var records []*msghandlerv1.MessageRecord
	for _, state := range states {
		found, err := a.list(ctx, state, c.Producer, c.Limit-len(records))
		if err != nil {
			return err
		}
		records = append(records, found...)
	}
	return c.print(s, records)
}

func (c *listCommand) print(s *session, records []*msghandlerv1.MessageRecord) error {
	if c.Output == outputJSON {
		messages := []record{}
		for _, r := range records {
			messages = append(messages, newRecord(r))
		}
		return s.printJSON(map[string]any{"messages": messages})
	}
	if len(records) == 0 {
		_, err := fmt.Fprintln(s.Out, "no messages")
		return err
	}
	now := time.Now()
	rows := [][]string{{"MESSAGE", "STATE", "CREATED", "DUE", "ATTEMPTS", "EXCHANGE", "ROUTING KEY", "LAST ERROR"}}
	for _, r := range records {
		m := newRecord(r)
		rows = append(rows, []string{
			m.Producer + "/" + m.ID, m.State, ageOf(r.GetCreateTime(), now), ageOf(r.GetDueTime(), now),
			strconv.Itoa(int(m.ConfirmAttempts + m.PublishAttempts)), m.Exchange, m.RoutingKey, shorten(m.LastError),
		})
	}
	return s.printTable(rows)
}

// shorten cuts an error so that a line stays a line; show has the whole.
func shorten(s string) string {
	const most = 60
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return s
}

// maxPage is the largest page a coordinator gives.
const maxPage = 1000

// list reads up to limit messages, page by page. A message may be on two pages when it moves meanwhile; it is given once.
func (a *admin) list(
	ctx context.Context, state halfmsg.State, producer string, limit int,
) ([]*msghandlerv1.MessageRecord, error) {
	var records []*msghandlerv1.MessageRecord
	seen := map[string]bool{}
	token := ""
	for len(records) < limit {
		response, err := call(ctx, a, a.client.ListMessages, &msghandlerv1.ListMessagesRequest{
			State: msghandlerv1.State(state), Producer: producer, PageToken: token,
			PageSize: int32(min(limit-len(records), maxPage)), //nolint:gosec // at most maxPage
		})
		if err != nil {
			return nil, err
		}
		for _, r := range response.GetRecords() {
			if name := r.GetProducer() + "/" + r.GetMessage().GetId(); !seen[name] && len(records) < limit {
				seen[name] = true
				records = append(records, r)
			}
		}
		if token = response.GetNextPageToken(); token == "" {
			break
		}
	}
	return records, nil
}

type showCommand struct {
	adminFlags
	Name string `arg:"" help:"The message, such as orders/1001." name:"PRODUCER/ID"`
}

// Run prints one message.
func (c *showCommand) Run(ctx context.Context, s *session) error {
	names, err := parseNames([]string{c.Name})
	if err != nil {
		return err
	}
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	request := &msghandlerv1.GetMessageRequest{Producer: names[0].GetProducer(), Id: names[0].GetId()}
	response, err := call(ctx, a, a.client.GetMessage, request)
	var missing notFoundError
	if errors.As(err, &missing) {
		return fmt.Errorf("%s: %w: it was never sent, was discarded, or has been finished for longer than done.retention",
			c.Name, err)
	}
	if err != nil {
		return err
	}
	if c.Output == outputJSON {
		return s.printJSON(newRecord(response.GetRecord()))
	}
	if err := s.printTable(describe(response.GetRecord(), time.Now())); err != nil {
		return err
	}
	_, err = fmt.Fprint(s.Out, preview(response.GetRecord().GetMessage().GetBody()))
	return err
}
