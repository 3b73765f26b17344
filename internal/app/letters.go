package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// lettersSchedule is how often dead letters are counted: each count opens a connection to each broker.
const lettersSchedule = "@every 15s"

// openLetters describes the queues of dead letters, and starts to count their letters. The default broker is at urls.
func (a *App) openLetters(urls []string) error {
	sources := a.letterSources(strings.Join(urls, ","))
	desk, err := operate.NewDesk(sources)
	if err != nil {
		return SettingsError{err}
	}
	a.backlog.letters.Store(desk)
	if len(sources) == 0 {
		return nil
	}
	count, err := a.newLoop("letters", lettersSchedule, func(ctx context.Context) (bool, error) {
		desk.Measure(ctx)
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
func (a *App) letterSources(defaultURL string) (all []operate.Source) {
	named := map[string]bool{}
	for _, name := range a.settings.DeadLetterNames() {
		d := a.settings.DeadLetters[name]
		source := operate.Source{
			Name: name, Queue: d.Queue, Broker: d.Broker, MayPublish: LetterRule(a.reloader.config, name, d.Broker),
		}
		url, key := a.settings.LettersURL(name)
		source.URL, source.Present = url, a.brokerURL(d.Broker, url)
		if key == "amqp.url" {
			source.URL, source.Broker, source.Default = defaultURL, "", true
			source.Present = a.brokerURL("", defaultURL)
			named[d.Queue] = true
		}
		named[name] = true
		all = append(all, source)
	}
	for _, queue := range a.settings.Events.DeadLetterQueues {
		if !named[queue] {
			named[queue] = true
			all = append(all, operate.Source{
				Name: queue, Queue: queue, URL: defaultURL, Present: a.brokerURL("", defaultURL), Default: true,
				MayPublish: LetterRule(a.reloader.config, queue, ""),
			})
		}
	}
	return all
}

// letterCounts are the numbers of letters that are known, by the names of the queues.
func (a *App) letterCounts() map[string]int {
	counts := map[string]int{}
	if desk := a.backlog.letters.Load(); desk != nil {
		for _, q := range desk.States() {
			if q.Count != nil {
				counts[q.GetName()] = int(q.GetCount().GetValue())
			}
		}
	}
	return counts
}

// letters reports queues with letters, except those that another finding reports.
func (f *findings) letters(states []*adminv1.DeadLetterQueue, reported []string) {
	for _, q := range states {
		if q.GetBroker() == "" && slices.Contains(reported, q.GetQueue()) {
			continue
		}
		on := cmp.Or(q.GetBroker(), halfmsg.DefaultBroker)
		if q.GetProblem() != "" {
			f.add(warning, "letters-unread", fmt.Sprintf("the dead letters of %s (queue %s, broker %s) cannot be counted: %s",
				q.GetName(), q.GetQueue(), on, q.GetProblem()), "no metric and no alert reports its dead letters",
				"check dead_letters."+q.GetName()+", the name of the queue, and the rights of the broker's user").
				Subject = cause.BrokerSubject(q.GetBroker())
		}
		if q.GetCount().GetValue() == 0 {
			continue
		}
		p := f.add(warning, "letters-waiting", fmt.Sprintf("dead letters of %s (queue %s, broker %s): %s%d", q.GetName(),
			q.GetQueue(), on, map[bool]string{true: "at most "}[q.GetCountAtMost()], q.GetCount().GetValue()),
			"their consumers gave up, and their effects are missing",
			"look at the page Dead letters of the console for the causes; fix the consumer, then replay; "+
				"see docs/howto/dead-letters.md")
		p.Subject, p.Count = q.GetName(), q.GetCount().GetValue()
	}
}
