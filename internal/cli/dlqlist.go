package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/app/letters"
	"github.com/msghandler/msghandler/internal/cli/commandline"
)

// dlqFilterFlags say which dead letters are meant, where they are not named.
type dlqFilterFlags struct {
	Producer  string        `help:"Only those of this producer." placeholder:"NAME"`
	Consumer  string        `help:"Only those that consumers of this queue, topic or stream gave up." placeholder:"QUEUE"`
	Exchange  string        `help:"Only those that were published to this exchange, topic or stream." placeholder:"NAME"`
	Cause     string        `help:"Only those whose first cause or reason contains this text, ignoring case." placeholder:"TEXT"`
	OlderThan time.Duration `help:"Only those that first failed at least so long ago, such as 10m." placeholder:"DURATION"`
}

func (f *dlqFilterFlags) filter(names ...string) letters.Filter {
	return letters.Filter{
		Names: names, Producer: f.Producer, Consumer: f.Consumer, Exchange: f.Exchange, Cause: f.Cause,
		OlderThan: f.OlderThan,
	}
}

// check refuses impossible filters.
func (f *dlqFilterFlags) check() error { return checkOlderThan(f.OlderThan) }

// matcher matches letters by their age now, and shows how many letters it has seen.
func matcher(filter letters.Filter, far *commandline.Progress) func(*consumer.Letter) bool {
	now, seen := time.Now(), 0
	return func(l *consumer.Letter) bool {
		seen++
		far.Update("looked at %d letters", seen)
		return filter.Match(l, now)
	}
}

type dlqListCommand struct {
	dlqFlags
	dlqFilterFlags
	Limit int `default:"100" help:"How many at most."`
}

// Run prints dead letters.
func (c *dlqListCommand) Run(ctx context.Context, s *commandline.Session) error {
	if c.Limit < 1 {
		return commandline.UsageError{Err: fmt.Errorf("--limit=%d: a list has at least one line", c.Limit)}
	}
	if err := c.check(); err != nil {
		return err
	}
	return c.letters(ctx, s, func(ctx context.Context, dead letterBox) error {
		far := s.Progress()
		found, err := dead.ListSelected(ctx, consumer.Selection{
			Limit: min(c.Limit, math.MaxInt-1) + 1, // to know whether more than the limit exist
			Match: matcher(c.filter(), far),
		})
		far.End()
		if err != nil {
			return err
		}
		more := len(found) > c.Limit
		listed := make([]letter, min(len(found), c.Limit))
		for i := range listed {
			listed[i] = newLetter(&found[i])
		}
		document := map[string]any{"letters": listed, "more": more}
		return errors.Join(s.PrintDocument(c.Output, document, func() [][]string { return letterRows(listed, time.Now()) }),
			cut(s, c.Output, c.Limit, more))
	})
}

func letterRows(listed []letter, now time.Time) [][]string {
	if len(listed) == 0 {
		return [][]string{{"no dead letters"}}
	}
	rows := [][]string{{"MESSAGE", "QUEUE", "AGE", "RETRIES", "EXCHANGE", "ROUTING KEY", "REASON"}}
	for _, l := range listed {
		rows = append(rows, []string{
			l.Producer + "/" + l.ID, l.Queue, age(l.WaitingSince, now), strconv.Itoa(l.Retries), l.Exchange, l.RoutingKey,
			shorten(l.Reason),
		})
	}
	return rows
}

type dlqCountCommand struct {
	dlqFlags
	dlqFilterFlags
}

// Help returns the text below the usage in --help.
func (c *dlqCountCommand) Help() string {
	return `The command looks at every letter, as dlq list does. Digits in causes count as #, so that causes with ids
are one group.`
}

// Run prints how many dead letters there are, by group.
func (c *dlqCountCommand) Run(ctx context.Context, s *commandline.Session) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.letters(ctx, s, func(ctx context.Context, dead letterBox) error {
		counted, err := countLetters(ctx, s, dead, c.filter())
		if err != nil {
			return err
		}
		return s.PrintDocument(c.Output, newLetterCount(counted), func() [][]string {
			now := time.Now()
			rows := [][]string{{"LETTERS", "OLDEST", "CONSUMER", "EXCHANGE", "ROUTING KEY", "CAUSE"}}
			rows = append(rows, groupRows(counted, now)...)
			return append(rows, []string{strconv.Itoa(counted.Letters), age(counted.Oldest, now), "in all", "", "", ""})
		})
	})
}

// countLetters looks at all letters, and counts those of a filter by group.
func countLetters(
	ctx context.Context, s *commandline.Session, dead letterBox, filter letters.Filter,
) (*letters.Groups, error) {
	counted := &letters.Groups{}
	far := s.Progress()
	defer far.End()
	match := matcher(filter, far)
	err := dead.Visit(ctx, func(l *consumer.Letter) bool {
		if match(l) {
			counted.Add(l)
			counted.AddRefused(dead.mayPublish.Check(l))
		}
		return true
	})
	return counted, err
}

func groupRows(counted *letters.Groups, now time.Time) (rows [][]string) {
	for _, g := range counted.All() {
		rows = append(rows, []string{
			strconv.Itoa(g.Letters), age(g.Oldest, now), g.Consumer, g.Exchange, g.RoutingKey, shorten(g.Cause),
		})
	}
	return rows
}

// letterCount is a count in --output json. The names of its fields are part of the product.
type letterCount struct {
	Letters      int           `json:"letters"`
	WaitingSince time.Time     `json:"waiting_since,omitzero"`
	Groups       []letterGroup `json:"groups"`
}

type letterGroup struct {
	Queue        string    `json:"queue"`
	Exchange     string    `json:"exchange"`
	RoutingKey   string    `json:"routing_key"`
	Cause        string    `json:"cause"`
	Letters      int       `json:"letters"`
	WaitingSince time.Time `json:"waiting_since,omitzero"`
}

func newLetterCount(counted *letters.Groups) letterCount {
	out := letterCount{Letters: counted.Letters, WaitingSince: counted.Oldest.UTC(), Groups: []letterGroup{}}
	for _, g := range counted.All() {
		out.Groups = append(out.Groups, letterGroup{
			Queue: g.Consumer, Exchange: g.Exchange, RoutingKey: g.RoutingKey, Cause: g.Cause, Letters: g.Letters,
			WaitingSince: g.Oldest.UTC(),
		})
	}
	return out
}
