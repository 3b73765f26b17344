// Package events tells people what they should know: it gathers events, and posts them to a webhook.
//
// Nothing waits for it. Events that are alike are counted as one while they wait, so what waits is bounded however long
// the webhook is away, and a thousand dead messages of one producer are one event.
package events

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/lifecycle"
)

// Kind is what has happened.
type Kind string

// The kinds. Those in pairs are the beginning and the end of a trouble.
const (
	// Abandoned and Dead: messages have become so; the subject is their producer.
	Abandoned Kind = "abandoned"
	Dead      Kind = "dead"
	// BreakerOpen and BreakerClosed: a callback target of the subject, a producer, is left alone, or called again.
	BreakerOpen   Kind = "breaker_open"
	BreakerClosed Kind = "breaker_closed"
	// StoreAway and StoreBack: Redis does not answer, or does again.
	StoreAway Kind = "store_away"
	StoreBack Kind = "store_back"
	// StoreUnsafe: Redis is set up in a way that breaks the promises.
	StoreUnsafe Kind = "store_unsafe"
	// StoreRegressed: Redis has forgotten what it had acknowledged.
	StoreRegressed Kind = "store_regressed"
	// Backlog and BacklogOver: more than a threshold waits, or no longer; the subject is "sendable" or a queue.
	Backlog     Kind = "backlog"
	BacklogOver Kind = "backlog_over"
	// ProducerRefused: calls of the subject, a producer, are refused for good.
	ProducerRefused Kind = "producer_refused"
	// UncleanEnd: coordinators have ended without a clean stop.
	UncleanEnd Kind = "unclean_end"
)

// Event is one or several events that are alike.
type Event struct {
	Kind    Kind   `json:"kind"`
	Subject string `json:"subject,omitempty"`
	// Count is how many events were alike.
	Count int `json:"count"`
	// Messages are some of the messages that it happened to.
	Messages []string `json:"messages,omitempty"`
	// Detail is what the latest of them says for people.
	Detail  string    `json:"detail,omitempty"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

// Config says where events go.
type Config struct {
	// URL is where they are posted; empty: nowhere, they are only counted.
	URL string
	// Token is sent as a bearer's, where it is set.
	Token string
	// Instance names this coordinator.
	Instance string
	// Gather is how long events are gathered before they are posted. Required.
	Gather time.Duration
	// Logger hears of a webhook that does not take events. Default slog.Default().
	Logger *slog.Logger
	// Metrics counts events and posts. Required.
	Metrics Metrics

	// timeout bounds one post. Tests choose a longer one.
	timeout time.Duration
}

// postTimeout bounds one post.
const postTimeout = 5 * time.Second

// Metrics hears what a Teller does. Its methods must not block.
type Metrics interface {
	// Noted tells of events of a kind.
	Noted(kind string, events int)
	// Posted tells of one post: ok, failed (tried again), or given_up.
	Posted(result string)
}

const (
	// maxWaiting is how many events that are not alike may wait; of more only their number is told.
	maxWaiting = 1000
	// maxMessages is how many messages an event names.
	maxMessages = 10
)

// Teller gathers events and posts them. Its methods may be called concurrently.
type Teller struct {
	config Config
	client *http.Client
	// bell rings when something waits.
	bell chan struct{}
	// retries is the context of posts that are tried again; stop ends it.
	retries context.Context
	stop    context.CancelFunc
	running lifecycle.Group

	mu      sync.Mutex
	waiting map[likeness]*Event
	dropped int
}

// likeness is what events that are counted as one have in common.
type likeness struct {
	kind    Kind
	subject string
}

// New returns a Teller at work. It must be closed.
func New(config Config) *Teller {
	if config.Gather <= 0 {
		panic("events: Config.Gather is not set") // a mistake of the program: internal/config has the default
	}
	config.timeout = cmp.Or(config.timeout, postTimeout)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	t := &Teller{
		config: config, client: newClient(config.timeout),
		bell:    make(chan struct{}, 1),
		waiting: map[likeness]*Event{},
	}
	t.retries, t.stop = context.WithCancel(context.Background())
	if config.URL != "" {
		t.running.Go(func() { t.run(t.retries) })
	}
	return t
}

// Note takes an event, with the messages that it happened to, if any. It never blocks.
func (t *Teller) Note(kind Kind, subject, detail string, messages ...string) {
	count := max(1, len(messages))
	t.config.Metrics.Noted(string(kind), count)
	if t.config.URL == "" {
		return
	}
	t.mu.Lock()
	t.add(Event{Kind: kind, Subject: subject, Count: count, Messages: messages, Detail: detail}, time.Now().UTC())
	t.mu.Unlock()
	select {
	case t.bell <- struct{}{}:
	default:
	}
}

// add counts an event to those that are like it. t.mu is held.
func (t *Teller) add(e Event, now time.Time) {
	like := likeness{e.Kind, e.Subject}
	known := t.waiting[like]
	if known == nil {
		if len(t.waiting) >= maxWaiting {
			t.dropped += e.Count
			return
		}
		known = &Event{Kind: e.Kind, Subject: e.Subject, FirstAt: now}
		t.waiting[like] = known
	}
	known.Count += e.Count
	known.Detail, known.LastAt = e.Detail, now
	room := min(len(e.Messages), maxMessages-len(known.Messages))
	known.Messages = append(known.Messages, e.Messages[:room]...)
}

// Waiting is how many events wait that are not alike.
func (t *Teller) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// take takes all that waits, in the order in which it happened last: whoever goes through it ends with what is. Nil
// when nothing waits.
func (t *Teller) take() (taken []Event, dropped int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range slices.SortedFunc(maps.Values(t.waiting), func(a, b *Event) int {
		return cmp.Or(a.LastAt.Compare(b.LastAt), a.FirstAt.Compare(b.FirstAt))
	}) {
		taken = append(taken, *e)
	}
	clear(t.waiting)
	dropped, t.dropped = t.dropped, 0
	return taken, dropped
}
