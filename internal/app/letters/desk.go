package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

const (
	// depthTime bounds the wait for a broker that only counts.
	depthTime = 4 * time.Second
	// lookTime is how long a page looks at letters, and walkTime how long the whole call may take: both are below the
	// time-out of an answer of the console.
	lookTime = 6 * time.Second
	walkTime = 15 * time.Second
	// turnTime is how long a call waits for another look at the same queue.
	turnTime = 5 * time.Second
	// pageSize is how many letters a page lists. maxLooked is how many letters of a queue a call takes and gives back:
	// RabbitMQ hands out letters from the front only, so a later page takes all letters before it too. maxChanged is
	// how many letters a call changes.
	pageSize   = 100
	maxLooked  = 10_000
	maxChanged = 10_000
	// maxRecords bounds the topics of Kafka that are read: a topic is read whole, and its letters are in memory.
	maxRecords = 20_000
	// oldestAge is how old the age of the oldest letter may be.
	oldestAge = time.Minute
)

// Source names a queue of dead letters.
type Source struct {
	// Name is the name in the configuration, and Broker the broker's; an empty Broker is the default broker.
	Name, Queue, Broker string
	// URL is where the broker is.
	URL string
	// MayPublish says why a letter of a producer may not be published to its exchange and routing key. Nil: every letter
	// may be.
	MayPublish Rule
}

// Desk reads and changes the letters of some queues. Each queue has one look or change at a time in this process, so
// two operators of a console see all letters each. A Desk is safe for concurrent use.
type Desk struct{ queues []*queue }

// queue is a queue of dead letters.
type queue struct {
	Source
	dead DeadLetters
	// turn has room for the one call that looks or changes.
	turn chan struct{}

	mu sync.Mutex
	// state is what the broker said last, and aged when it said which letter is the oldest.
	state pages.LetterQueue
	aged  time.Time
}

// NewDesk describes the queues; the first call connects.
func NewDesk(sources []Source) (*Desk, error) {
	d := &Desk{}
	for _, s := range sources {
		dead, err := Open(s.URL, s.Queue)
		if err != nil {
			return nil, fmt.Errorf("dead_letters.%s: %w", s.Name, err)
		}
		d.queues = append(d.queues, &queue{Source: s, dead: dead, turn: make(chan struct{}, 1), state: pages.LetterQueue{
			Name: s.Name, Queue: s.Queue, Broker: s.Broker, AtMost: scheme(s.URL) == "kafka",
		}})
	}
	slices.SortFunc(d.queues, func(a, b *queue) int { return cmp.Compare(a.Name, b.Name) })
	return d, nil
}

// Count asks all brokers for the number of letters, and takes none.
func (d *Desk) Count(ctx context.Context) {
	d.each(func(q *queue) { q.count(ctx) })
}

// States are what the brokers said last.
func (d *Desk) States() (all []pages.LetterQueue) {
	for _, q := range d.queues {
		q.mu.Lock()
		all = append(all, q.state)
		q.mu.Unlock()
	}
	return all
}

// Queues counts the letters, and asks for the oldest at most once in oldestAge.
func (d *Desk) Queues(ctx context.Context) []pages.LetterQueue {
	d.each(func(q *queue) {
		q.count(ctx)
		q.findOldest(ctx)
	})
	return d.States()
}

// each runs do for all queues side by side. A panic is the problem of its queue: no page may end the process.
func (d *Desk) each(do func(*queue)) {
	var all sync.WaitGroup
	for _, q := range d.queues {
		all.Go(func() {
			if failure := lifecycle.Recovered(func() { do(q) }); failure != nil {
				q.setCount(0, failure)
			}
		})
	}
	all.Wait()
}

func (q *queue) count(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, depthTime)
	defer cancel()
	q.setCount(q.dead.Depth(ctx))
}

func (q *queue) setCount(count int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Count, q.state.Known, q.state.Problem = count, err == nil, ""
	if err != nil {
		q.state.Problem = err.Error()
	}
}

// findOldest leaves the age as it is where the look would change the order of the queue, would take long, or would wait
// for another look. A list finds the age there.
func (q *queue) findOldest(ctx context.Context) {
	q.mu.Lock()
	state, fresh := q.state, time.Since(q.aged) < oldestAge
	q.mu.Unlock()
	if state.Known && state.Count == 0 {
		q.setOldest(time.Time{})
		return
	}
	if fresh || !state.Known || state.AtMost && state.Count > maxRecords {
		return
	}
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, depthTime)
	defer cancel()
	if oldest, err := q.dead.Oldest(ctx); err == nil {
		q.setOldest(oldest.Since())
	} else if errors.Is(err, consumer.ErrNoLetter) {
		q.setOldest(time.Time{})
	}
}

func (q *queue) setOldest(since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Oldest, q.aged = since, time.Now()
}

// refused is an error for readers.
func refused(status int, format string, args ...any) error {
	return pages.RefusedError{Status: status, Text: fmt.Sprintf(format, args...)}
}

// take waits for the turn at a queue, and bounds the time of the call.
func (d *Desk) take(ctx context.Context, name string) (*queue, context.Context, func(), error) {
	i := slices.IndexFunc(d.queues, func(q *queue) bool { return q.Name == name })
	if i < 0 {
		return nil, nil, nil, refused(http.StatusNotFound, "The configuration has no queue of dead letters named %s.", name)
	}
	q := d.queues[i]
	wait := time.NewTimer(turnTime)
	defer wait.Stop()
	select {
	case q.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, nil, ctx.Err()
	case <-wait.C:
		return nil, nil, nil, refused(http.StatusServiceUnavailable,
			"Another operator looks at %s at this moment, or changes its letters. Try again in some seconds.", name)
	}
	ctx, cancel := context.WithTimeout(ctx, walkTime)
	done := func() { cancel(); <-q.turn }
	if err := q.mayRead(ctx); err != nil {
		done()
		return nil, nil, nil, err
	}
	return q, ctx, done, nil
}

// mayRead refuses a topic that is too large to be read whole.
func (q *queue) mayRead(ctx context.Context) error {
	if !q.state.AtMost {
		return nil
	}
	q.count(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.state.Known:
		return q.unreachable(errors.New(q.state.Problem))
	case q.state.Count > maxRecords:
		return refused(http.StatusConflict, "The topic %s has %d records. Kafka finds letters only by reading "+
			"the whole topic, and the console reads at most %d records: use msghandler dlq --queue %s.", q.Queue, q.state.Count,
			maxRecords, q.Queue)
	}
	return nil
}

// unreachable is the error of a broker that has not answered, or has refused.
func (q *queue) unreachable(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return refused(http.StatusGatewayTimeout, "The broker did not show all letters of %s in time: %v. Every letter is "+
			"still there. Try again, or use msghandler dlq --queue %s.", q.Name, err, q.Queue)
	}
	return refused(http.StatusServiceUnavailable, "The letters of %s cannot be read: %v.", q.Name, err)
}
