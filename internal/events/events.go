// Package events notifies operators: events are gathered and posted to a webhook.
//
// No caller waits for the webhook. Waiting events of the same kind and subject are merged, so the memory is bounded
// while the webhook is unavailable, and a thousand dead messages of a producer are a single event.
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

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// Kind is the kind of an event.
type Kind string

// The kinds. A pair is the beginning and the end of a trouble.
const (
	// Abandoned and Dead: messages have become so; the subject is their producer.
	Abandoned Kind = "abandoned"
	Dead      Kind = "dead"
	// BreakerOpen and BreakerClosed: a callback target of the subject, a producer, is not called, or called again.
	BreakerOpen   Kind = "breaker_open"
	BreakerClosed Kind = "breaker_closed"
	// StoreAway and StoreBack: Redis does not answer, or does again.
	StoreAway Kind = "store_away"
	StoreBack Kind = "store_back"
	// StoreUnsafe: settings of Redis break the promises.
	StoreUnsafe Kind = "store_unsafe"
	// StoreRegressed: Redis has lost acknowledged writes.
	StoreRegressed Kind = "store_regressed"
	// Backlog and BacklogOver: more than a threshold waits, or no longer; the subject is "sendable" or a queue.
	Backlog     Kind = "backlog"
	BacklogOver Kind = "backlog_over"
	// ProducerRefused: calls of the subject, a producer, are refused for good.
	ProducerRefused Kind = "producer_refused"
	// ProducerSplit: replicas of the subject, a producer, have different marker stores.
	ProducerSplit Kind = "producer_split"
	// UncleanEnd: coordinators have ended without a clean stop.
	UncleanEnd Kind = "unclean_end"
)

// Event is an event, or several merged events.
type Event struct {
	Kind    Kind   `json:"kind"`
	Subject string `json:"subject,omitempty"`
	// Count is how many events were alike.
	Count int `json:"count"`
	// Messages are some of the messages of the event.
	Messages []string `json:"messages,omitempty"`
	// Detail is the latest text for operators.
	Detail  string    `json:"detail,omitempty"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
}

// Config says where events go.
type Config struct {
	// URL is where they are posted now; nil: nowhere, they are only counted.
	URL func() string
	// Token is the bearer token of now; nil or empty: none.
	Token func() string
	// Instance names this coordinator.
	Instance string
	// Gather is how long events are gathered before they are posted. Required.
	Gather time.Duration
	// Logger gets a line when the webhook does not accept events. Default slog.Default().
	Logger *slog.Logger
	// Metrics counts events and posts. Required.
	Metrics Metrics

	// timeout bounds a post. Tests choose a longer timeout.
	timeout time.Duration
}

// postTimeout bounds a post.
const postTimeout = 5 * time.Second

// Metrics counts events and posts. Its methods must not block.
type Metrics interface {
	// Noted counts events of a kind.
	Noted(kind string, events int)
	// Posted counts a post: ok, failed (retried), or given_up.
	Posted(result string)
}

const (
	// maxWaiting bounds the distinct events that wait; of further events only the number is posted.
	maxWaiting = 1000
	// maxMessages is how many messages an event names.
	maxMessages = 10
)

// Notifier gathers events and posts them. Its methods may be called concurrently.
type Notifier struct {
	config Config
	client *http.Client
	// wake has a value when events wait.
	wake chan struct{}
	// retries is the context of retried posts; stop ends the context.
	retries context.Context
	stop    context.CancelFunc
	running lifecycle.Group

	mu      sync.Mutex
	waiting map[mergeKey]*Event
	dropped int
}

// likeness is the key by which events are merged.
type mergeKey struct {
	kind    Kind
	subject string
}

// New starts a Notifier, which must be closed.
func New(config Config) *Notifier {
	if config.Gather <= 0 {
		panic("events: Config.Gather is not set") // a mistake of the program: internal/config has the default
	}
	if config.Token == nil {
		config.Token = func() string { return "" }
	}
	config.timeout = cmp.Or(config.timeout, postTimeout)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	t := &Notifier{
		config: config, client: newClient(config.timeout),
		wake:    make(chan struct{}, 1),
		waiting: map[mergeKey]*Event{},
	}
	t.retries, t.stop = context.WithCancel(context.Background())
	if config.URL != nil {
		t.running.Go(func() { t.run(t.retries) })
	}
	return t
}

// Note adds an event, with its messages if any. Note never blocks.
func (t *Notifier) Note(kind Kind, subject, detail string, messages ...string) {
	count := max(1, len(messages))
	t.config.Metrics.Noted(string(kind), count)
	if t.config.URL == nil {
		return
	}
	t.mu.Lock()
	t.add(Event{Kind: kind, Subject: subject, Count: count, Messages: messages, Detail: detail}, time.Now().UTC())
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// add merges an event into the waiting event of the same kind and subject. n.mu is held.
func (t *Notifier) add(e Event, now time.Time) {
	like := mergeKey{e.Kind, e.Subject}
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

// Waiting is the number of distinct waiting events.
func (t *Notifier) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// takeEvents removes all waiting events and returns them ordered by their last occurrence, so that the last event shows
// the current state. The result is nil if nothing waits.
func (t *Notifier) takeEvents() (taken []Event, dropped int) {
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
