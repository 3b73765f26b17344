package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type statsCommand struct {
	adminFlags
	watchFlags
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
	return c.runAsking(ctx, s, &c.adminFlags, c.once)
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
	return s.PrintDocument(c.Output, document, func() [][]string {
		now := time.Now()
		rows := statsRows(response.GetStates(), now)
		for _, further := range furtherRows(response, now) {
			rows = append(append(rows, []string{}), further...)
		}
		return rows
	})
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
