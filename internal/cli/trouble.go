package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// troubleStates are the states that messages in trouble have.
var troubleStates = []msghandlerv1.State{
	msghandlerv1.State_STATE_DEAD, msghandlerv1.State_STATE_ABANDONED, msghandlerv1.State_STATE_SENDABLE,
	msghandlerv1.State_STATE_PENDING,
}

// groupTrouble groups dead and abandoned messages, and messages that wait after an error. left is how many small groups
// the coordinator left out.
func groupTrouble(ctx context.Context, a *admin) (groups []group, left int, err error) {
	groups, counts, err := readGroups(ctx, a, &adminv1.MessageFilter{}, troubleStates)
	for _, c := range counts {
		left += int(c.More)
	}
	return slices.DeleteFunc(groups, func(g group) bool { return !g.inTrouble() }), left, err
}

func (g *group) inTrouble() bool {
	return g.State == halfmsg.Dead.String() || g.State == halfmsg.Abandoned.String() || g.ExampleError != ""
}

// groups sorts groups: the largest first, the oldest first, or by name.
func (o order) groups(all []group) []group {
	return slices.SortedStableFunc(slices.Values(all), func(a, b group) int {
		switch o {
		case byAge:
			return oldestFirst(a.OldestAt, b.OldestAt)
		case byName:
			return cmp.Compare(a.example(), b.example())
		default:
			return cmp.Compare(b.Count, a.Count)
		}
	})
}

// producers sorts producers: by their rate, the busiest first, by the last answer, the oldest first, or by name.
func (o order) producers(all []*adminv1.ProducerStats) []*adminv1.ProducerStats {
	return slices.SortedStableFunc(slices.Values(all), func(a, b *adminv1.ProducerStats) int {
		switch o {
		case byAge:
			return oldestFirst(moment(a.GetLastAnswerTime()), moment(b.GetLastAnswerTime()))
		case byName:
			return cmp.Compare(a.GetName(), b.GetName())
		default:
			return cmp.Compare(b.GetStoredPerSecond(), a.GetStoredPerSecond())
		}
	})
}

// oldestFirst compares times; no time comes last.
func oldestFirst(a, b *time.Time) int {
	if a == nil || b == nil {
		return cmp.Compare(map[bool]int{true: 1}[a == nil], map[bool]int{true: 1}[b == nil])
	}
	return a.Compare(*b)
}

// troubleRows are the rows of the groups. A count that is not exact has a mark.
func troubleRows(groups []group, now time.Time) [][]string {
	if len(groups) == 0 {
		return [][]string{{"no messages"}}
	}
	rows := [][]string{{"COUNT", "STATE", "EXCHANGE", "OLDEST", "MESSAGE", "CAUSE"}}
	for _, g := range groups {
		count := strconv.FormatInt(g.Count, 10)
		if g.estimated {
			count = "~" + count
		}
		rows = append(rows, []string{
			count, g.State, cmp.Or(g.Exchange, halfmsg.DefaultExchange), ageAt(g.OldestAt, now), g.example(),
			cmp.Or(halfmsg.Reason(g.Cause), halfmsg.NoCause),
		})
	}
	return rows
}
