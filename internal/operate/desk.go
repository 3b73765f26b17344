package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	// depthTime bounds the wait for a broker that only counts.
	depthTime = 4 * time.Second
	// turnTime is how long a call waits for another call at the same queue. A look that ends early gives its letters back
	// before.
	turnTime = 5 * time.Second
	// oldestAge is how old the age of the oldest letter may be.
	oldestAge = time.Minute
)

// bounds bound the calls of a Desk.
type bounds struct {
	// look is how long a call looks at letters, and walk how long it may take.
	look, walk time.Duration
	// looked is how many letters of a queue a call takes and gives back: RabbitMQ hands out letters from the front only,
	// so a later page takes all letters before it too. records bounds the topics of Kafka: each look reads a topic whole.
	looked, records int
}

var (
	// shared is for the calls of all operators to a coordinator, whose answers have a time-out.
	shared = bounds{look: 6 * time.Second, walk: 15 * time.Second, looked: 10_000, records: 20_000}
	// alone is for a command of one operator, with a time-out of its own.
	alone = bounds{look: 24 * time.Hour, walk: 24 * time.Hour, looked: math.MaxInt, records: math.MaxInt}
)

// Source names a queue of dead letters.
type Source struct {
	// Name is the name in the configuration, and Broker the broker's; an empty Broker is the default broker.
	Name, Queue, Broker string
	// URL is where the broker is, and Key what names it for people; default: dead_letters.NAME.
	URL, Key string
	// Present is the URL of now: a password may have been rotated. Nil: URL.
	Present func() string
	// Default says that the queue is read as the coordinator publishes: at the default broker, as its user.
	Default bool
	// MayPublish says why a letter of a producer may not be published to its exchange and routing key. Nil: every letter
	// may be.
	MayPublish Rule
}

// Desk reads and changes the letters of some queues. Each queue has one look or change at a time in this process, so
// two operators of a coordinator see all letters each. A Desk is safe for concurrent use.
type Desk struct {
	queues []*queue
	bounds bounds
}

// queue is a queue of dead letters.
type queue struct {
	Source
	dead   DeadLetters
	bounds bounds
	// turn is of the one call that looks or changes.
	turn *turn

	mu sync.Mutex
	// state is what the broker said last, and aged when it said which letter is the oldest.
	state *adminv1.DeadLetterQueue
	aged  time.Time
}

// NewDesk describes the queues, for the operators of a coordinator; the first call connects.
func NewDesk(sources []Source) (*Desk, error) { return newDesk(sources, shared) }

func newDesk(sources []Source, bounds bounds) (*Desk, error) {
	d := &Desk{bounds: bounds}
	for _, s := range sources {
		dead, err := open(s.URL, s.Queue)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cmp.Or(s.Key, "dead_letters."+s.Name), err)
		}
		d.queues = append(d.queues, newQueue(s, dead, bounds))
	}
	slices.SortFunc(d.queues, func(a, b *queue) int { return cmp.Compare(a.Name, b.Name) })
	return d, nil
}

func newQueue(s Source, dead DeadLetters, bounds bounds) *queue {
	state := &adminv1.DeadLetterQueue{
		Name: s.Name, Queue: s.Queue, Broker: s.Broker, CountAtMost: scheme(s.URL) == "kafka",
	}
	return &queue{Source: s, dead: dead, bounds: bounds, turn: newTurn(), state: state}
}

// letters describes the dead letters at the URL of now.
func (q *queue) letters() DeadLetters {
	if q.Present != nil {
		if dead, err := open(q.Present(), q.Queue); err == nil {
			return dead
		}
	}
	return q.dead
}

// Measure asks all brokers for the number of letters, and takes none.
func (d *Desk) Measure(ctx context.Context) {
	d.eachQueue(func(q *queue) { q.count(ctx) })
}

// States are what the brokers said last.
func (d *Desk) States() (all []*adminv1.DeadLetterQueue) {
	for _, q := range d.queues {
		q.mu.Lock()
		all = append(all, proto.CloneOf(q.state))
		q.mu.Unlock()
	}
	return all
}

// Queues counts the letters, and asks for the oldest at most once in oldestAge.
func (d *Desk) Queues(ctx context.Context) []*adminv1.DeadLetterQueue {
	d.eachQueue(func(q *queue) {
		q.count(ctx)
		q.findOldest(ctx)
	})
	return d.States()
}

// eachQueue runs do for all queues side by side. A panic is the problem of its queue: no page may end the process.
func (d *Desk) eachQueue(do func(*queue)) {
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
	q.setCount(q.letters().Depth(ctx))
}

func (q *queue) setCount(count int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.Count, q.state.Problem = wrapperspb.Int64(int64(count)), ""
	if err != nil {
		q.state.Count, q.state.Problem = nil, clean(err.Error())
	}
}

// findOldest leaves the age as it is where the look would change the order of the queue, would take long, or would wait
// for another look. A list finds the age there.
func (q *queue) findOldest(ctx context.Context) {
	q.mu.Lock()
	state, fresh := proto.CloneOf(q.state), time.Since(q.aged) < oldestAge
	q.mu.Unlock()
	if state.Count != nil && state.Count.Value == 0 {
		q.setOldest(time.Time{})
		return
	}
	if fresh || state.Count == nil || q.tooMany(state) {
		return
	}
	ctx, done, err := q.turn.acquire(ctx, viewing, 0)
	if err != nil {
		return
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, depthTime)
	defer cancel()
	if oldest, err := q.letters().Oldest(ctx); err == nil {
		q.setOldest(oldest.Since())
	} else if errors.Is(err, consumer.ErrNoLetter) {
		q.setOldest(time.Time{})
	}
}

func (q *queue) setOldest(since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.state.OldestTime, q.aged = moment(since), time.Now()
}

// tooMany says whether a topic is too large to be read whole.
func (q *queue) tooMany(state *adminv1.DeadLetterQueue) bool {
	return state.GetCountAtMost() && state.GetCount().GetValue() > int64(q.bounds.records)
}

// moment is a time, or nil where it is not known.
func moment(at time.Time) *timestamppb.Timestamp {
	if at.IsZero() {
		return nil
	}
	return timestamppb.New(halfmsg.Tellable(at))
}

// refused is an error for callers.
func refused(kind, cause error, format string, args ...any) error {
	return &halfmsg.DeadLettersError{Kind: kind, Cause: cause, Text: clean(fmt.Sprintf(format, args...))}
}

// find returns the queue with a name. A name that no queue has may be that of a queue of the default broker itself.
func (d *Desk) find(name string) (*queue, error) {
	var names []string
	for _, is := range []func(q *queue) bool{
		func(q *queue) bool { return q.Name == name },
		func(q *queue) bool { return q.Default && q.Queue == name },
	} {
		if i := slices.IndexFunc(d.queues, is); i >= 0 {
			return d.queues[i], nil
		}
	}
	for _, q := range d.queues {
		names = append(names, q.Name)
	}
	if len(names) == 0 {
		return nil, refused(halfmsg.ErrNoDeadLetterQueues, nil, "The configuration of this coordinator names no queue of "+
			"dead letters: set dead_letters.NAME.queue and restart the coordinators, or use msghandler dlq --direct.")
	}
	return nil, refused(halfmsg.ErrNoDeadLetter, nil, "The configuration has no dead letters named %.100s, but %.500s: "+
		"name one of them, set dead_letters.NAME.queue, or use msghandler dlq --direct.", name, strings.Join(names, ", "))
}

// takeTurn waits for the turn at a queue, and bounds the time of the call.
func (d *Desk) takeTurn(ctx context.Context, name string, of rank) (*queue, context.Context, func(), error) {
	q, err := d.find(name)
	if err != nil {
		return nil, nil, nil, err
	}
	held, release, err := q.turn.acquire(ctx, of, turnTime)
	if errors.Is(err, errBusy) {
		return nil, nil, nil, refused(halfmsg.ErrDeadLettersBusy, nil,
			"Another operator looks at %s at this moment, or changes its dead letters. Try again in some seconds.", name)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	held, cancel := context.WithTimeout(held, q.bounds.walk)
	done := func() { cancel(); release() }
	if err := q.mayRead(held); err != nil {
		done()
		return nil, nil, nil, err
	}
	return q, held, done, nil
}

// mayRead refuses a topic that is too large to be read whole.
func (q *queue) mayRead(ctx context.Context) error {
	if !q.state.GetCountAtMost() {
		return nil
	}
	records, err := q.letters().Depth(ctx)
	if q.setCount(records, err); err != nil {
		return q.unreachable(ctx, err)
	}
	if records > q.bounds.records {
		return refused(halfmsg.ErrTooManyDeadLetters, nil, "The topic %s has %d records. Kafka finds dead letters only by "+
			"reading the whole topic, and a coordinator reads at most %d records: use msghandler dlq --direct --queue %s.",
			q.Queue, records, q.bounds.records, q.Name)
	}
	return nil
}

// unreachable is the error of a broker that has not answered, or has refused, or of a look that an operator has ended.
func (q *queue) unreachable(ctx context.Context, err error) error {
	if context.Cause(ctx) == errYielded { //nolint:errorlint // the cause itself
		return refused(halfmsg.ErrDeadLettersBusy, err,
			"An operator needs the dead letters of %s at this moment, so this look ended. Try again in some seconds.", q.Name)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return refused(halfmsg.ErrDeadLettersUnreadable, err, "The broker did not show all dead letters of %s in time: %v. "+
			"Every dead letter is still there. Try again, or use msghandler dlq --direct --queue %s with a longer --timeout.",
			q.Name, err, q.Name)
	}
	return refused(halfmsg.ErrDeadLettersUnreadable, err, "The dead letters of %s cannot be read: %v.", q.Name, err)
}
