package letters

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
)

// Group is what letters have in common: a consumer gave messages of an exchange and a routing key up for one cause.
type Group struct {
	Exchange, RoutingKey, Consumer, Cause string
}

// GroupCount is a group with the number of its letters and since when the oldest of them waits.
type GroupCount struct {
	Group
	Letters int
	Oldest  time.Time
}

// Groups counts letters by group. The zero value is empty.
type Groups struct {
	counts map[Group]*GroupCount
	// Letters is the number of all letters, and Oldest since when the oldest of them waits.
	Letters int
	Oldest  time.Time
	// Refused counts the letters that may not be replayed, by why.
	Refused map[string]int
}

const (
	// maxGroups bounds the groups. Letters beyond them are in one group, which has this cause.
	maxGroups  = 1000
	otherCause = "(other causes)"
	// maxCause is how many bytes of a cause make a group.
	maxCause = 200
)

// Add counts a letter.
func (g *Groups) Add(l *consumer.Letter) {
	if g.counts == nil {
		g.counts = map[Group]*GroupCount{}
	}
	group := Group{l.Exchange, l.RoutingKey, l.Queue, shortCause(cmp.Or(l.FirstCause, l.Reason))}
	if g.counts[group] == nil && len(g.counts) >= maxGroups {
		group = Group{Cause: otherCause}
	}
	count := g.counts[group]
	if count == nil {
		count = &GroupCount{Group: group}
		g.counts[group] = count
	}
	count.Letters++
	g.Letters++
	count.Oldest, g.Oldest = earlier(count.Oldest, l.Since()), earlier(g.Oldest, l.Since())
}

// AddRefused counts why a letter may not be replayed; nil: it may.
func (g *Groups) AddRefused(why error) {
	if why == nil {
		return
	}
	if g.Refused == nil {
		g.Refused = map[string]int{}
	}
	text := why.Error()
	if _, known := g.Refused[text]; !known && len(g.Refused) >= maxGroups {
		text = otherCause
	}
	g.Refused[text]++
}

// Staying is how many letters may not be replayed.
func (g *Groups) Staying() (n int) {
	for _, letters := range g.Refused {
		n += letters
	}
	return n
}

// All are the groups, the largest first.
func (g *Groups) All() []GroupCount {
	all := make([]GroupCount, 0, len(g.counts))
	for _, count := range g.counts {
		all = append(all, *count)
	}
	slices.SortFunc(all, func(a, b GroupCount) int {
		return cmp.Or(cmp.Compare(b.Letters, a.Letters), cmp.Compare(a.Consumer, b.Consumer),
			cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.RoutingKey, b.RoutingKey), cmp.Compare(a.Cause, b.Cause))
	})
	return all
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
