package operate

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// group is what letters have in common: a consumer gave messages of an exchange and a routing key up for one cause.
type group struct{ consumer, exchange, routingKey, cause string }

// groups counts letters by group.
type groups map[group]*groupCount

type groupCount struct {
	letters int64
	oldest  time.Time
	// said is the failure of the first letter, which stands for all.
	said string
}

const (
	// maxGroups bounds the groups. Letters beyond them are in one group.
	maxGroups = 1000
	// OtherCauses is the cause of that group.
	OtherCauses = "(other causes)"
)

// add counts a letter.
func (g groups) add(l *consumer.Letter) {
	of := group{clean(l.Queue), clean(l.Exchange), clean(l.RoutingKey), causeOf(l)}
	said := cmp.Or(halfmsg.CauseText(failureOf(l), nameOf(l)), halfmsg.NoCause)
	if g[of] == nil && len(g) >= maxGroups {
		of, said = group{cause: OtherCauses}, OtherCauses
	}
	if g[of] == nil {
		g[of] = &groupCount{said: said}
	}
	g[of].letters++
	g[of].oldest = earlier(g[of].oldest, l.Since())
}

// all are the groups, the largest first, and since when the oldest letter waits.
func (g groups) all() (all []*adminv1.DeadLetterGroup, oldest time.Time) {
	for of, count := range g {
		oldest = earlier(oldest, count.oldest)
		all = append(all, &adminv1.DeadLetterGroup{
			Consumer: of.consumer, Exchange: of.exchange, RoutingKey: of.routingKey, Cause: count.said, Count: count.letters,
			OldestTime: moment(count.oldest),
		})
	}
	slices.SortFunc(all, func(a, b *adminv1.DeadLetterGroup) int {
		return cmp.Or(cmp.Compare(b.GetCount(), a.GetCount()), cmp.Compare(a.GetConsumer(), b.GetConsumer()),
			cmp.Compare(a.GetExchange(), b.GetExchange()), cmp.Compare(a.GetRoutingKey(), b.GetRoutingKey()),
			cmp.Compare(a.GetCause(), b.GetCause()))
	})
	return all, oldest
}

// causeOf is what the failures of like letters have in common.
func causeOf(l *consumer.Letter) string {
	return cmp.Or(halfmsg.Cause(failureOf(l), nameOf(l)), halfmsg.NoCause)
}

func nameOf(l *consumer.Letter) halfmsg.Name { return halfmsg.Name{Producer: l.Producer, ID: l.ID} }

// failureOf is the first failure of a letter, or else its last. Other programs write letters: the failure may be long.
func failureOf(l *consumer.Letter) string {
	failure := cmp.Or(l.FirstCause, l.Reason)
	return strings.ToValidUTF8(failure[:min(len(failure), halfmsg.MaxCause)], "")
}

// earlier is the earlier of two times; a zero time counts for nothing.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
