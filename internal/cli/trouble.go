package cli

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// troubleGroup is messages in trouble that have producer, exchange, state and cause in common.
type troubleGroup struct {
	state, exchange, cause string
	count                  int64
	// estimated says that not all messages were read.
	estimated bool
	// message is the oldest of those that were read.
	message string
	oldest  *timestamppb.Timestamp
}

// troubleStates are the states that messages in trouble have.
var troubleStates = []halfmsg.State{halfmsg.Dead, halfmsg.Abandoned, halfmsg.Sendable, halfmsg.Pending}

// groupTrouble groups dead and abandoned messages, and messages that wait after an error. left is how many small groups
// the coordinator left out.
func groupTrouble(ctx context.Context, a *admin) (groups []*troubleGroup, left int, err error) {
	for _, state := range troubleStates {
		response, err := a.client.GroupMessages(ctx, &adminv1.GroupMessagesRequest{
			Filter: &adminv1.MessageFilter{State: msghandlerv1.State(state)},
		})
		if err != nil {
			return nil, 0, err
		}
		left += int(response.GetOmittedGroups())
		for _, g := range response.GetGroups() {
			if inTrouble(state, g.GetExampleError()) {
				groups = append(groups, &troubleGroup{
					state: state.String(), exchange: g.GetExchange(), cause: halfmsg.Reason(g.GetCause()), count: g.GetCount(),
					estimated: response.GetSampleSize() < response.GetTotalSize(),
					message:   g.GetProducer() + "/" + g.GetExampleId(), oldest: g.GetOldestCreateTime(),
				})
			}
		}
	}
	return groups, left, nil
}

// inTrouble says whether a message of a state with a last error is in trouble.
func inTrouble(state halfmsg.State, lastError string) bool {
	return state == halfmsg.Dead || state == halfmsg.Abandoned || lastError != ""
}

// groups sorts groups: the largest first, the oldest first, or by name.
func (o order) groups(all []*troubleGroup) []*troubleGroup {
	return slices.SortedStableFunc(slices.Values(all), func(a, b *troubleGroup) int {
		switch o {
		case byAge:
			return oldestFirst(a.oldest, b.oldest)
		case byName:
			return cmp.Compare(a.message, b.message)
		default:
			return cmp.Compare(b.count, a.count)
		}
	})
}

// producers sorts producers: by their rate, the busiest first, by the last answer, the oldest first, or by name.
func (o order) producers(all []*adminv1.ProducerStats) []*adminv1.ProducerStats {
	return slices.SortedStableFunc(slices.Values(all), func(a, b *adminv1.ProducerStats) int {
		switch o {
		case byAge:
			return oldestFirst(a.GetLastAnswerTime(), b.GetLastAnswerTime())
		case byName:
			return cmp.Compare(a.GetName(), b.GetName())
		default:
			return cmp.Compare(b.GetStoredPerSecond(), a.GetStoredPerSecond())
		}
	})
}

// oldestFirst compares times; no time comes last.
func oldestFirst(a, b *timestamppb.Timestamp) int {
	if a == nil || b == nil {
		return cmp.Compare(map[bool]int{true: 1}[a == nil], map[bool]int{true: 1}[b == nil])
	}
	return a.AsTime().Compare(b.AsTime())
}

// size is the count of the group with a mark where the count is not exact.
func (g *troubleGroup) size() string {
	size := strconv.FormatInt(g.count, 10)
	if g.estimated {
		return "~" + size
	}
	return size
}

// troubleRows are the rows of the groups.
func troubleRows(groups []*troubleGroup, now time.Time) [][]string {
	if len(groups) == 0 {
		return [][]string{{"no messages"}}
	}
	rows := [][]string{{"COUNT", "STATE", "EXCHANGE", "OLDEST", "MESSAGE", "CAUSE"}}
	for _, g := range groups {
		rows = append(rows, []string{
			g.size(), g.state, cmp.Or(g.exchange, halfmsg.DefaultExchange), ageOf(g.oldest, now), g.message,
			cmp.Or(g.cause, halfmsg.NoCause),
		})
	}
	return rows
}
