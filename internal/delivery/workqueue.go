package delivery

import (
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// WorkQueue is a bounded queue of leased messages, in lanes. A few workers at a time take batches from the lanes. The
// producers of the confirm stage, the deletions of markers and the send stage each have such queues.
//
// The invariants: no more than Parallel batches hold a place; each pushed message is in one batch, or is handed back by
// Close; a message whose lane may work never waits while a place is free; a pass without room is asked for again when
// there is room.
//
// The lock of the config guards a WorkQueue, its lanes and the state of its handlers. It must be held by callers,
// except where a method says otherwise.
type WorkQueue struct {
	config   WorkQueueConfig
	capacity Capacity
	lanes    []*Lane
	// running counts the batches that hold a place, turns the batches that were taken.
	running, turns int
	// stragglers counts the unsettled messages of batches that have given their place back.
	stragglers int
	// taking says that a worker is about to take a batch.
	taking bool
	// passWanted says that the store may hold more than the last pass took.
	passWanted bool
	closed     bool
}

// WorkQueueConfig says how a WorkQueue works.
type WorkQueueConfig struct {
	// Name names the batches in the log.
	Name string
	// Lock guards the queue. Several queues may share it.
	Lock *sync.Mutex
	// Workers runs the workers; who closes the queue waits for the group.
	Workers *lifecycle.Group
	// Capacity bounds what waits.
	Capacity Capacity
	// Total counts what waits in several queues together; may be nil.
	Total *Capacity
	// Parallel is how many batches may be under way at once.
	Parallel int
	// MaxStragglers is how many stragglers there may be while another batch is taken.
	MaxStragglers int
	// InTurn lets the lanes take turns. Otherwise the lane with the fewest batches under way goes first, so that one lane
	// cannot hold all places while another has work.
	InTurn bool
	// Pipeline is asked for a pass over the messages in State when there is room again.
	Pipeline *Pipeline
	State    halfmsg.State
	Logger   *slog.Logger
}

// Permit says what a worker may do with a batch.
type Permit uint8

const (
	// Proceed lets the worker handle the batch as usual.
	Proceed Permit = iota
	// Probe lets the worker handle the batch. The result shows whether the target works again.
	Probe
	// Postpone has the batch handed back to the store until later.
	Postpone
	// Wait takes no batch now.
	Wait
)

// Handler is the owner of a lane. All methods except Work are called with the lock held.
type Handler interface {
	// Permit says what may be done with the next batch of the lane. It changes nothing.
	Permit(now time.Time) Permit
	// Begin notes that a batch is taken, and returns how many messages the batch may have.
	Begin(permit Permit) (size int)
	// Work handles a batch. A panic ends the batch, whose messages keep their state.
	Work(b *Batch)
	// End notes that a batch gives its place back. room says whether there is enough room for another pass.
	End(b *Batch) (room bool)
}

// Lane is one order of messages in a WorkQueue.
type Lane struct {
	queue   *WorkQueue
	handler Handler
	// parallel is how many batches of the lane may be under way at once.
	parallel int
	// room is how many messages may wait before the rest is postponed; 0 is any number.
	room    int
	waiting []Leased
	// running counts the batches that hold a place, turn is the number of the latest batch.
	running, turn int
}

// Batch is a part of a lane that a worker handles.
type Batch struct {
	Permit Permit
	// Messages are the messages of the batch. A worker may take out messages that it has handed back.
	Messages []Leased

	lane *Lane
	// placed says that the batch holds a place. After that, left counts the messages that are not settled yet.
	placed bool
	left   int
}

// NewWorkQueue returns an empty queue without lanes.
func NewWorkQueue(config WorkQueueConfig) *WorkQueue {
	return &WorkQueue{config: config, capacity: config.Capacity}
}

// NewLane adds a lane. At most parallel batches of it are under way at once. Messages beyond room are postponed; 0 is
// no limit.
func (q *WorkQueue) NewLane(handler Handler, parallel, room int) *Lane {
	l := &Lane{queue: q, handler: handler, parallel: parallel, room: room}
	q.lanes = append(q.lanes, l)
	return l
}

// Remove drops an idle lane.
func (q *WorkQueue) Remove(l *Lane) {
	q.lanes = slices.DeleteFunc(q.lanes, func(other *Lane) bool { return other == l })
}

// Waiting is how many messages wait.
func (q *WorkQueue) Waiting() int { return q.capacity.Waiting() }

// Free is how many messages fit.
func (q *WorkQueue) Free() int { return q.capacity.Free() }

// FreeHalf is how many messages fit into the half that backlog may fill.
func (q *WorkQueue) FreeHalf() int { return q.capacity.FreeHalf() }

// Idle says that no message waits and no batch is under way.
func (q *WorkQueue) Idle() bool { return !q.taking && q.running == 0 && q.capacity.Waiting() == 0 }

// WantPass says whether another pass is wanted when there is room again.
func (q *WorkQueue) WantPass(wanted bool) { q.passWanted = wanted }

// Close takes no further batch, and returns the messages that wait; the caller hands them back. Batches under way go
// on. No message may be pushed after Close.
func (q *WorkQueue) Close() (waiting []Leased) {
	q.closed = true
	for _, l := range q.lanes {
		waiting = append(waiting, l.cut(0, len(l.waiting))...)
	}
	return waiting
}

// Push adds a message to the end of the lane. Callers that must keep the bounds call Free first.
func (l *Lane) Push(message *Leased) {
	l.waiting = append(l.waiting, *message)
	l.added(len(l.waiting) - 1)
}

// Insert adds a message at a place.
func (l *Lane) Insert(place int, message *Leased) {
	l.waiting = slices.Insert(l.waiting, place, *message)
	l.added(place)
}

func (l *Lane) added(place int) {
	added := l.waiting[place : place+1]
	l.queue.capacity.Add(added...)
	if l.queue.config.Total != nil {
		l.queue.config.Total.Add(added...)
	}
	l.queue.Dispatch()
}

// Len is how many messages wait in the lane.
func (l *Lane) Len() int { return len(l.waiting) }

// At is the waiting message at a place.
func (l *Lane) At(place int) *Leased { return &l.waiting[place] }

// Running is how many batches of the lane hold a place.
func (l *Lane) Running() int { return l.running }

// Idle says that no message waits in the lane, and no batch of the lane is under way.
func (l *Lane) Idle() bool { return len(l.waiting) == 0 && l.running == 0 }

// Dispatch starts a worker if messages wait and there is a place. Owners call it when a Permit may have changed.
func (q *WorkQueue) Dispatch() {
	if q.taking || q.running == q.config.Parallel || q.stragglers > q.config.MaxStragglers || q.capacity.Waiting() == 0 {
		return
	}
	q.taking = true
	q.config.Workers.Go(q.work)
}

// work takes a batch and handles it.
func (q *WorkQueue) work() {
	b := q.takeBatch()
	if b == nil {
		return
	}
	if failure := lifecycle.Recovered(func() { b.lane.handler.Work(b) }); failure != nil {
		q.config.Logger.Error("batch panicked: its messages keep their state; the next lease holder retries",
			"batch", q.config.Name, "messages", len(b.Messages), "cause", failure, "stack", string(failure.Stack))
	}
	b.Settled(len(b.Messages))
}

// takeBatch takes the next batch, and starts the worker of the batch after that. Goroutines that are ready to run go
// first: on a busy machine they bring messages for the same batch, and a batch costs little more than a message.
func (q *WorkQueue) takeBatch() *Batch {
	runtime.Gosched()
	q.config.Lock.Lock()
	defer q.config.Lock.Unlock()
	q.taking = false
	l, permit := q.next()
	if l == nil {
		return nil
	}
	from := 0
	if l.crowded() {
		from = l.room
	}
	q.turns++
	q.running++
	l.running++
	l.turn = q.turns
	b := &Batch{lane: l, Permit: permit, Messages: l.cut(from, l.handler.Begin(permit)), placed: true}
	q.Dispatch()
	return b
}

// next returns the lane to take a batch from, or nil while all lanes have to wait.
func (q *WorkQueue) next() (best *Lane, permit Permit) {
	now := time.Now()
	for _, l := range q.lanes {
		if len(l.waiting) == 0 || (best != nil && !l.before(best)) {
			continue
		}
		if p := l.permit(now); p != Wait {
			best, permit = l, p
		}
	}
	return best, permit
}

func (l *Lane) before(other *Lane) bool {
	if l.queue.config.InTurn || l.running == other.running {
		return l.turn < other.turn
	}
	return l.running < other.running
}

func (l *Lane) permit(now time.Time) Permit {
	switch {
	case l.crowded():
		return Postpone
	case l.running >= l.parallel:
		return Wait
	}
	return l.handler.Permit(now)
}

// crowded says whether the lane holds more messages than its room.
func (l *Lane) crowded() bool { return l.room > 0 && len(l.waiting) > l.room }

// maxKept is the largest array that an empty lane keeps, in messages of some 400 bytes each.
const maxKept = 2048

// cut takes at most n messages out of the lane, from a place on.
func (l *Lane) cut(from, n int) []Leased {
	n = min(n, len(l.waiting)-from)
	taken := slices.Clone(l.waiting[from : from+n])
	switch {
	case from > 0 || len(l.waiting) < 4*n && cap(l.waiting) <= maxKept: // the array serves again
		l.waiting = slices.Delete(l.waiting, from, from+n)
	default:
		clear(l.waiting[:n]) // or the bodies would stay in memory as long as the lane is not empty
		l.waiting = l.waiting[n:]
	}
	l.queue.capacity.Remove(taken...)
	if l.queue.config.Total != nil {
		l.queue.config.Total.Remove(taken...)
	}
	return taken
}

// Settled counts messages of a batch as settled. The first call gives the place of the batch back, and the messages
// that are left then are stragglers: they delay the next batch only if there are many of them. Settled takes the lock.
func (b *Batch) Settled(messages int) {
	q := b.lane.queue
	q.config.Lock.Lock()
	messages, room := b.countSettled(messages), false
	if b.placed {
		b.placed = false
		q.running--
		b.lane.running--
		q.stragglers += b.left
		room = b.lane.handler.End(b)
	} else {
		q.stragglers -= messages
	}
	q.Dispatch()
	wake := room && q.passWanted && !q.closed
	if wake {
		q.passWanted = false
	}
	q.config.Lock.Unlock()
	if wake {
		q.config.Pipeline.Due(q.config.State)
	}
}

func (b *Batch) countSettled(messages int) int {
	if b.placed {
		b.left = len(b.Messages)
	}
	messages = min(messages, b.left)
	b.left -= messages
	return messages
}
