package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type statsCommand struct {
	adminFlags
	Watch bool          `short:"w" help:"Count again and again until interrupted."`
	Every time.Duration `default:"2s" help:"With --watch: how often."`
}

// stateStats is a state of stats in --output json.
type stateStats struct {
	State    string     `json:"state"`
	Count    int64      `json:"count"`
	OldestAt *time.Time `json:"oldest_at,omitempty"`
	// FirstDueAt is in the future where all wait for their time.
	FirstDueAt *time.Time `json:"first_due_at,omitempty"`
}

// Run prints how many messages stand in each state.
func (c *statsCommand) Run(ctx context.Context, s *commandline.Session) error {
	a, err := c.connect(s)
	if err != nil {
		return err
	}
	defer a.Close()
	if !c.Watch {
		return c.once(ctx, s, a)
	}
	return again(ctx, c.Every, func(ctx context.Context) error {
		separate(s, c.Output)
		return c.once(ctx, s, a)
	}, func(failure error) {
		s.Note("msghandler: %v", failure)
	})
}

// separate writes the separator between two outputs.
func separate(s *commandline.Session, output string) {
	switch {
	case output == commandline.OutputYAML:
		fmt.Fprintln(s.Out, "---")
	case output == commandline.OutputTable && commandline.IsTerminal(s.Out):
		fmt.Fprint(s.Out, clearScreen)
		fallthrough
	case output == commandline.OutputTable:
		fmt.Fprintln(s.Out, time.Now().Format(time.TimeOnly))
	}
}

func (c *statsCommand) once(ctx context.Context, s *commandline.Session, a *admin) error {
	response, err := a.client.GetStats(ctx, &adminv1.GetStatsRequest{})
	if err != nil {
		return err
	}
	states := make([]stateStats, len(response.GetStates()))
	for i, st := range response.GetStates() {
		states[i] = stateStats{
			stateName(st.GetState()), st.GetCount(), moment(st.GetOldestCreateTime()), moment(st.GetFirstDueTime()),
		}
	}
	document := map[string]any{
		"states": states, "brokers": newBrokerStats(response.GetBrokers()),
		"findings":     coordinatorFindings(response.GetFindings()),
		"coordinators": newCoordinators(response.GetCoordinators()),
		"flow":         newFlowStats(response.GetFlow()),
		"producers":    newProducerStats(response.GetProducers()),
		"exchanges":    newExchangeStats(response.GetExchanges()),
	}
	err = s.PrintDocument(c.Output, document, func() [][]string { return statsRows(response.GetStates(), time.Now()) })
	if err != nil || c.Output != commandline.OutputTable {
		return err
	}
	for _, rows := range furtherRows(response, time.Now()) {
		fmt.Fprintln(s.Out)
		if err := s.PrintTable(rows); err != nil {
			return err
		}
	}
	return nil
}

// furtherRows are the tables below the states. Tables that say nothing are left out.
func furtherRows(response *adminv1.GetStatsResponse, now time.Time) (tables [][][]string) {
	tables = append(tables, flowRows(response.GetFlow()))
	if all := response.GetBrokers(); len(all) > 1 {
		tables = append(tables, brokerRows(all))
	}
	if all := response.GetProducers(); len(all) > 0 {
		tables = append(tables, producerRows(all, now))
	}
	if all := response.GetExchanges(); len(all) > 0 {
		tables = append(tables, exchangeRows(all, now))
	}
	if all := response.GetCoordinators(); len(all) > 0 {
		tables = append(tables, coordinatorRows(all, now))
	}
	if all := response.GetFindings(); len(all) > 0 {
		tables = append(tables, findingRows(all, now))
	}
	return tables
}

// brokerStats is a broker of stats in --output json.
type brokerStats struct {
	// Name is empty for the default broker.
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Ready   bool   `json:"ready"`
	Trouble string `json:"trouble,omitempty"`
	Waiting int64  `json:"waiting"`
}

func newBrokerStats(all []*adminv1.BrokerStats) []brokerStats {
	brokers := make([]brokerStats, len(all))
	for i, b := range all {
		brokers[i] = brokerStats{b.GetName(), b.GetKind(), b.GetProblem() == "", b.GetProblem(), b.GetQueuedMessages()}
	}
	return brokers
}

func brokerRows(all []*adminv1.BrokerStats) [][]string {
	rows := [][]string{{"BROKER", "KIND", "WAITING", "TROUBLE"}}
	for _, b := range all {
		rows = append(rows, []string{
			cmp.Or(b.GetName(), "(default)"), b.GetKind(), strconv.FormatInt(b.GetQueuedMessages(), 10),
			cmp.Or(b.GetProblem(), "-"),
		})
	}
	return rows
}

func statsRows(states []*adminv1.StateStats, now time.Time) [][]string {
	rows := [][]string{{"STATE", "COUNT", "OLDEST", "FIRST DUE"}}
	for _, st := range states {
		rows = append(rows, []string{
			stateName(st.GetState()), strconv.FormatInt(st.GetCount(), 10), ageOf(st.GetOldestCreateTime(), now),
			ageOf(st.GetFirstDueTime(), now),
		})
	}
	return rows
}

// clearScreen clears a terminal and goes to its upper left corner.
const clearScreen = "\x1b[H\x1b[2J"

// again does something at once and at each interval, until the context or an interrupt ends the watch, which is no
// failure. A failure of the first time ends the watch. Later failures are reported and the watch goes on, because a
// person watches to see an outage end.
func again(ctx context.Context, every time.Duration, do func(context.Context) error, report func(failure error)) error {
	if every < minInterval {
		return commandline.UsageError{Err: fmt.Errorf("--every=%s: at least %s", every, minInterval)}
	}
	ctx, stop := commandline.Interruptible(ctx)
	defer stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for first := true; ; first = false {
		switch err := do(ctx); {
		case err == nil || ctx.Err() != nil:
		case first:
			return err
		default:
			report(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// minInterval keeps a watch from being a load.
const minInterval = 100 * time.Millisecond
