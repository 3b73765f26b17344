package console

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/console/pages"
)

// tray is a queue with a dead letter for pages without a broker.
type tray struct {
	queue  pages.LetterQueue
	letter pages.Letter
}

// trayOf has a text in every field.
func trayOf(text string) tray {
	since := time.Now().Add(-3 * time.Hour)
	return tray{
		pages.LetterQueue{Name: text, Queue: text + ".dead", Broker: text, Count: 1, Known: true, Oldest: since},
		pages.Letter{
			Producer: text, ID: text, Consumer: text, Exchange: text, RoutingKey: text, Reason: "not " + text, FirstCause: text,
			Retries: 5, Since: since, ContentType: text, Headers: map[string]string{text: text}, Body: []byte(text),
		},
	}
}

func (t tray) Queues(context.Context) []pages.LetterQueue { return []pages.LetterQueue{t.queue} }

func (t tray) List(context.Context, pages.LetterQuery) (pages.LetterPage, error) {
	return pages.LetterPage{Letters: []pages.Letter{t.letter}, Next: 100, Note: "The look ended."}, nil
}

func (t tray) Get(context.Context, string, string) (pages.Letter, error) { return t.letter, nil }

func (t tray) Count(context.Context, pages.LetterChange) (pages.LetterTally, error) {
	to := []pages.LetterDestination{{Exchange: "orders", Letters: 1}}
	return pages.LetterTally{Count: 1, AtLeast: true, Destinations: to}, nil
}

func (t tray) Change(context.Context, pages.LetterChange) (pages.LettersChanged, error) {
	return pages.LettersChanged{Done: 1}, nil
}
