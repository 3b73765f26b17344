package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/app/letters"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// lettersSchedule is how often dead letters are counted: each count opens a connection to each broker.
const lettersSchedule = "@every 15s"

// openLetters describes the queues of dead letters, and starts to count their letters. The default broker is at urls.
func (a *App) openLetters(urls []string) error {
	sources := a.letterSources(strings.Join(urls, ","))
	desk, err := letters.NewDesk(sources)
	if err != nil {
		return SettingsError{err}
	}
	a.letters.Store(desk)
	if len(sources) == 0 {
		return nil
	}
	count, err := a.newLoop("letters", lettersSchedule, func(ctx context.Context) (bool, error) {
		desk.Count(ctx)
		return false, nil
	})
	if err != nil {
		return err
	}
	count.Start()
	count.Wake()
	return nil
}

// letterSources are the queues of dead_letters, and those of events.dead_letter_queues that dead_letters does not name.
func (a *App) letterSources(defaultURL string) (all []letters.Source) {
	named := map[string]bool{}
	for _, name := range a.settings.DeadLetterNames() {
		d := a.settings.DeadLetters[name]
		source := letters.Source{
			Name: name, Queue: d.Queue, Broker: d.Broker, MayPublish: LetterRule(a.reloader.config, name, d.Broker),
		}
		url, key := a.settings.LettersURL(name)
		if source.URL = url; key == "amqp.url" {
			source.URL, source.Broker = defaultURL, ""
			named[d.Queue] = true
		}
		named[name] = true
		all = append(all, source)
	}
	for _, queue := range a.settings.Events.DeadLetterQueues {
		if !named[queue] {
			named[queue] = true
			all = append(all, letters.Source{
				Name: queue, Queue: queue, URL: defaultURL, MayPublish: LetterRule(a.reloader.config, queue, ""),
			})
		}
	}
	return all
}

// letterCounts are the numbers of letters that are known, by the names of the queues.
func (a *App) letterCounts() map[string]int {
	counts := map[string]int{}
	if desk := a.letters.Load(); desk != nil {
		for _, q := range desk.States() {
			if q.Known {
				counts[q.Name] = q.Count
			}
		}
	}
	return counts
}

// letters reports queues with letters, except those that another finding reports.
func (f *findings) letters(states []pages.LetterQueue, reported []string) {
	for _, q := range states {
		if q.Broker == "" && slices.Contains(reported, q.Queue) {
			continue
		}
		on := cmp.Or(q.Broker, halfmsg.DefaultBroker)
		if q.Problem != "" {
			f.add(warning, "letters-unread", fmt.Sprintf("the dead letters of %s (queue %s, broker %s) cannot be counted: %s",
				q.Name, q.Queue, on, q.Problem), "no metric and no alert reports its letters",
				"check dead_letters."+q.Name+", the name of the queue, and the rights of the broker's user")
		}
		if !q.Known || q.Count == 0 {
			continue
		}
		f.add(warning, "letters-waiting", fmt.Sprintf("dead letters of %s (queue %s, broker %s): %s%d", q.Name, q.Queue, on,
			map[bool]string{true: "at most "}[q.AtMost], q.Count),
			"their consumers gave up, and their effects are missing",
			"look at the page Letters of the console for the causes; fix the consumer, then replay; see docs/run/letters.md")
	}
}

// letterClerk is what a user of the console at an address does with letters, or nil while brokers are not known yet.
func (a *App) letterClerk(by string) pages.Letters {
	if desk := a.letters.Load(); desk != nil {
		return clerk{desk, a.audit, by}
	}
	return nil
}

// clerk records the changes of a user.
type clerk struct {
	*letters.Desk
	trail audit.Recorder
	by    string
}

// Count implements pages.Letters.
func (c clerk) Count(ctx context.Context, change pages.LetterChange) (pages.LetterTally, error) {
	return c.CountLetters(ctx, change)
}

// Change implements pages.Letters. A change that was begun ends, also when its user has closed the page.
func (c clerk) Change(ctx context.Context, change pages.LetterChange) (pages.LettersChanged, error) {
	ctx = context.WithoutCancel(ctx)
	changed, result, err := c.Desk.Change(ctx, change)
	record := audit.Record{
		From: c.by, Via: audit.Console, Action: audit.ReplayLetters, Names: changed.Names,
		Filter: letterFilter(change.LetterQuery) + published(changed.Destinations), Reason: change.Reason, Result: audit.Done,
	}
	if change.Discard {
		record.Action = audit.DiscardLetters
	}
	if len(changed.Names) > 0 {
		c.trail.Record(ctx, record)
	}
	if problem := cmp.Or(result.Problem, textOf(err)); problem != "" {
		record.Names, record.Result, record.Cause = nil, audit.Failed, problem
		c.trail.Record(ctx, record)
	}
	return result, err
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// published says where a replay has published letters, with their numbers, for the audit trail.
func published(to []pages.LetterDestination) string {
	var b strings.Builder
	for _, d := range to {
		fmt.Fprintf(&b, " published=%q:%d", strings.TrimSpace(d.Exchange+" "+d.RoutingKey), d.Letters)
	}
	return b.String()
}

// letterFilter describes a query for the audit trail.
func letterFilter(q pages.LetterQuery) string {
	parts := []string{"queue=" + q.Queue}
	for _, part := range []struct{ name, value string }{
		{"producer", q.Producer}, {"consumer", q.Consumer}, {"exchange", q.Exchange}, {"cause", q.Cause},
	} {
		if part.value != "" {
			parts = append(parts, fmt.Sprintf("%s=%q", part.name, part.value))
		}
	}
	if q.OlderThan > 0 {
		parts = append(parts, "older_than="+q.OlderThan.Round(time.Second).String())
	}
	return strings.Join(parts, " ")
}
