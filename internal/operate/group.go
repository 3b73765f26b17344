package operate

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// group is what letters have in common: a consumer gave messages of an exchange and a routing key up for one cause.
type group struct{ consumer, exchange, routingKey, cause string }

// groups counts letters by group.
type groups map[group]*groupCount

type groupCount struct {
	letters int64
	oldest  time.Time
}

const (
	// maxGroups bounds the groups. Letters beyond them are in one group, which has this cause.
	maxGroups  = 1000
	otherCause = "(other causes)"
	// maxCause is how many bytes of a cause make a group.
	maxCause = 200
)

// add counts a letter.
func (g groups) add(l *consumer.Letter) {
	of := group{clean(l.Queue), clean(l.Exchange), clean(l.RoutingKey), shortCause(cmp.Or(l.FirstCause, l.Reason))}
	if g[of] == nil && len(g) >= maxGroups {
		of = group{cause: otherCause}
	}
	if g[of] == nil {
		g[of] = &groupCount{}
	}
	g[of].letters++
	g[of].oldest = earlier(g[of].oldest, l.Since())
}

// all are the groups, the largest first, and since when the oldest letter waits.
func (g groups) all() (all []*adminv1.DeadLetterGroup, oldest time.Time) {
	for of, count := range g {
		oldest = earlier(oldest, count.oldest)
		all = append(all, &adminv1.DeadLetterGroup{
			Consumer: of.consumer, Exchange: of.exchange, RoutingKey: of.routingKey, Cause: of.cause, Count: count.letters,
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

// digits are what differs between equal causes: ids, sizes and ports.
var digits = regexp.MustCompile(`[0-9]+`)

// shortCause is the part of a cause that equal failures share.
func shortCause(cause string) string {
	return digits.ReplaceAllString(strings.ToValidUTF8(cause[:min(len(cause), maxCause)], ""), "#")
}

// earlier is the earlier of two times; a zero time counts for nothing.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
