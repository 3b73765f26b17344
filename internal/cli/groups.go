package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// group is a group of messages in --output json. The names of its fields are part of the product.
type group struct {
	State     string     `json:"state"`
	Producer  string     `json:"producer"`
	Broker    string     `json:"broker,omitempty"`
	Exchange  string     `json:"exchange"`
	Cause     string     `json:"cause"`
	Count     int64      `json:"count"`
	OldestAt  *time.Time `json:"oldest_at,omitempty"`
	NewestAt  *time.Time `json:"newest_at,omitempty"`
	ExampleID string     `json:"example_id"`
	// ExampleError is the whole last error of the example.
	ExampleError string `json:"example_error,omitempty"`
	// estimated says that not all messages of the state were read.
	estimated bool
}

// example is the name of the oldest message that was read.
func (g *group) example() string { return g.Producer + "/" + g.ExampleID }

// groupCounts says how the counts of a state's groups came about.
type groupCounts struct {
	State string `json:"state"`
	// Looked and Total are how many messages were read, of how many. The counts are exact where both are equal.
	Looked int64 `json:"looked"`
	Total  int64 `json:"total"`
	// More is the number of smaller groups that are left out.
	More int32 `json:"more_groups"`
}

// groups prints the groups of each state.
func (c *listCommand) groups(ctx context.Context, s *commandline.Session, a *admin,
	filter *adminv1.MessageFilter,
) error {
	stop := s.Progress().During("grouping")
	all, counts, err := readGroups(ctx, a, filter, statesOf(filter))
	stop()
	if err != nil {
		return err
	}
	document := map[string]any{"groups": all, "states": counts}
	if err := s.PrintDocument(c.Output, document, func() [][]string {
		return messageGroupRows(all, time.Now())
	}); err != nil {
		return err
	}
	return sampled(s, c.Output, counts)
}

func readGroups(
	ctx context.Context, a *admin, filter *adminv1.MessageFilter, states []msghandlerv1.State,
) (all []group, counts []groupCounts, err error) {
	all = []group{} // in a document, no groups are a list
	for _, state := range states {
		of := proto.CloneOf(filter)
		of.State = state
		found, err := a.client.GroupMessages(ctx, &adminv1.GroupMessagesRequest{Filter: of})
		if err != nil {
			return nil, nil, err
		}
		counts = append(counts, groupCounts{
			stateName(state), found.GetSampleSize(), found.GetTotalSize(), found.GetOmittedGroups(),
		})
		for _, g := range found.GetGroups() {
			all = append(all, group{
				State: stateName(state), Producer: g.GetProducer(), Broker: g.GetBroker(), Exchange: g.GetExchange(),
				Cause: g.GetCause(), Count: g.GetCount(), OldestAt: moment(g.GetOldestCreateTime()),
				NewestAt: moment(g.GetNewestCreateTime()), ExampleID: g.GetExampleId(), ExampleError: g.GetExampleError(),
				estimated: found.GetSampleSize() < found.GetTotalSize(),
			})
		}
	}
	return all, counts, nil
}

func messageGroupRows(all []group, now time.Time) [][]string {
	if len(all) == 0 {
		return [][]string{{"no messages"}}
	}
	rows := [][]string{{"COUNT", "STATE", "PRODUCER", "EXCHANGE", "OLDEST", "NEWEST", "EXAMPLE", "CAUSE"}}
	for _, g := range all {
		rows = append(rows, []string{
			strconv.FormatInt(g.Count, 10), g.State, g.Producer, cmp.Or(g.Exchange, halfmsg.DefaultExchange),
			ageAt(g.OldestAt, now), ageAt(g.NewestAt, now), g.ExampleID, cmp.Or(halfmsg.Reason(g.Cause), halfmsg.NoCause),
		})
	}
	return rows
}

// sampled says on standard error which counts of a table are estimates, and which groups are left out.
func sampled(s *commandline.Session, output string, counts []groupCounts) error {
	if output != commandline.OutputTable {
		return nil
	}
	for _, c := range counts {
		if c.Looked < c.Total {
			if _, err := fmt.Fprintf(s.Err, "msghandler: the counts of %s messages are estimates from %d of %d; "+
				"a rare group may be missing\n", c.State, c.Looked, c.Total); err != nil {
				return err
			}
		}
		if c.More > 0 {
			if _, err := fmt.Fprintf(s.Err, "msghandler: %d smaller groups of %s messages are left out\n",
				c.More, c.State); err != nil {
				return err
			}
		}
	}
	return nil
}
