package attend

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// outcome is what came of a question at one replica, or at one coordinator.
type outcome struct {
	answer *msghandlerv1.AttendAnswer
	// err says why there is no answer: errLost, errLate or errOnlyFailing.
	err error
	// mailbox is the coordinator that the question was sent to; empty for this one.
	mailbox string
}

// Why a question has no answer.
var (
	errLost = errors.New("the stream has ended, or its coordinator")
	errLate = errors.New("the replica has not answered in time")
	// errOnlyFailing: the coordinator has only streams that fail to answer.
	errOnlyFailing = errors.New("only replicas that fail to answer attend there")
)

// failureMemory is for how long a stream counts as failing after a question without an answer in time. Afterwards the
// stream gets questions in turn again.
const failureMemory = 30 * time.Second

// Stream is an open stream of a replica. The hub's lock guards its fields.
type Stream struct {
	hub    *Hub
	roster *roster
	hello  Hello
	// out has what is to be sent. Its room is enough for the welcome, the questions and the go_away; questions whose time
	// is over may fill the room, and then no question is asked.
	out chan *msghandlerv1.AttendResponse
	// drained is closed when no question is open and none will follow.
	drained chan struct{}

	open map[uint64]*openQuestion
	last uint64
	// welcomed says that questions may be asked, leaving that none may any more.
	welcomed, leaving, ended bool
	// failedAt is when a question was last not answered in time, or not in a third of it; zero after an answer.
	failedAt time.Time
}

// openQuestion is a question without an answer.
type openQuestion struct {
	// asker ends when the answer is not needed any more.
	asker context.Context
	// result has room for one outcome.
	result chan<- outcome
	timer  *time.Timer
}

// newStream adds a stream to a roster. The hub's lock is held.
func newStream(h *Hub, r *roster, hello Hello) *Stream {
	s := &Stream{
		hub: h, roster: r, hello: hello,
		out:     make(chan *msghandlerv1.AttendResponse, hello.Parallel+2),
		drained: make(chan struct{}), open: map[uint64]*openQuestion{},
	}
	r.streams = append(r.streams, s)
	return s
}

func (s *Stream) welcome() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.out <- welcomeOf(s.hub.config.Instance) // the first message, so there is room
	s.welcomed, s.roster.announced = true, true
	s.roster.wakeLocked()
	if s.leaving { // a drain came between
		s.goAwayLocked()
	}
}

// Out has what must be sent to the replica, in this order.
func (s *Stream) Out() <-chan *msghandlerv1.AttendResponse { return s.out }

// Drained is closed when the stream can be ended: it was to leave, and no question is open.
func (s *Stream) Drained() <-chan struct{} { return s.drained }

// Leave asks no more questions on the stream, which the replica is told where tell is set.
func (s *Stream) Leave(tell bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.leaveLocked(tell)
}

func (s *Stream) leaveLocked(tell bool) {
	if s.leaving {
		return
	}
	s.leaving = true
	s.removeLocked()
	if tell && s.welcomed {
		s.goAwayLocked()
	}
	s.drainLocked()
}

// goAwayLocked queues the go_away. Without room the stream is stuck, and only its end helps.
func (s *Stream) goAwayLocked() {
	goAway := &msghandlerv1.AttendResponse{Kind: &msghandlerv1.AttendResponse_GoAway{GoAway: &msghandlerv1.GoAway{}}}
	select {
	case s.out <- goAway:
	default:
	}
}

// removeLocked takes the stream out of its roster.
func (s *Stream) removeLocked() {
	r, h := s.roster, s.hub
	i := slices.Index(r.streams, s)
	if i < 0 {
		return
	}
	r.streams = slices.Delete(r.streams, i, i+1)
	r.wakeLocked() // who waits for room here must look elsewhere
	if len(r.streams) == 0 {
		delete(h.rosters, s.hello.Producer)
		if r.announced {
			h.recent.put(s.hello.Producer, true)
		}
		select {
		case h.announceNow <- struct{}{}:
		default:
		}
	}
}

func (s *Stream) drainLocked() {
	if s.leaving && len(s.open) == 0 && !s.ended {
		s.ended = true
		s.hub.streams--
		close(s.drained)
	}
}

// End ends the stream. Open questions are lost, and asked elsewhere. End may be called again.
func (s *Stream) End() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.leaveLocked(false)
	for id := range s.open {
		s.closeLocked(id, outcome{err: errLost})
	}
}

// Answer takes an answer of the replica.
func (s *Stream) Answer(answer *msghandlerv1.AttendAnswer) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	q := s.open[answer.GetId()]
	if q == nil || q.asker.Err() != nil {
		s.hub.config.Asked(Late)
	}
	if q != nil {
		s.failedAt = time.Time{}
		s.closeLocked(answer.GetId(), outcome{answer: answer})
	}
}

// closeLocked ends a question.
func (s *Stream) closeLocked(id uint64, result outcome) {
	q := s.open[id]
	delete(s.open, id)
	s.hub.open--
	q.timer.Stop()
	q.result <- result
	s.roster.wakeLocked()
	s.drainLocked()
}

// expire gives a question up. The stream counts as failing until it answers.
func (s *Stream) expire(id uint64) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	if s.open[id] == nil {
		return
	}
	s.failedAt = time.Now()
	s.closeLocked(id, outcome{err: errLate})
}

// failingLocked reports whether the last question on the stream was not answered in time.
func (s *Stream) failingLocked() bool {
	return !s.failedAt.IsZero() && time.Since(s.failedAt) < failureMemory
}

// hasRoomLocked reports whether another question may be asked on the stream.
func (s *Stream) hasRoomLocked() bool {
	return s.welcomed && !s.leaving && len(s.open) < s.hello.Parallel && len(s.out) < s.hello.Parallel
}

// suspectLocked has the stream count as failing where a question is still open.
func (s *Stream) suspectLocked(id uint64) {
	if s.open[id] != nil {
		s.failedAt = time.Now()
	}
}

// askLocked sends a question, whose outcome comes to result at the end of timeout at the latest, and returns its id.
// The stream has room.
func (s *Stream) askLocked(
	asker context.Context, question *msghandlerv1.AttendQuestion, timeout time.Duration, result chan<- outcome,
) (id uint64) {
	s.last++
	id = s.last
	own := proto.CloneOf(question)
	own.Id, own.Timeout = id, durationpb.New(timeout)
	s.hub.open++
	s.open[id] = &openQuestion{
		asker: asker, result: result, timer: time.AfterFunc(timeout, func() { s.expire(id) }),
	}
	s.out <- &msghandlerv1.AttendResponse{Kind: &msghandlerv1.AttendResponse_Question{Question: own}}
	return id
}

// takeLocked chooses the next stream with room that an ask has not used, in turn, and that may answer for the marker
// store. failing says which streams: those that fail to answer, or the others. full reports whether one of the streams
// has no room.
func (r *roster) takeLocked(used map[*Stream]uint64, failing bool, store string) (chosen *Stream, full bool) {
	for i := range r.streams {
		s := r.streams[(r.next+i)%len(r.streams)]
		switch {
		case used[s] > 0 || s.failingLocked() != failing || isOther(s.hello.MarkerStore, store):
		case !s.hasRoomLocked():
			full = true
		default:
			r.next = (r.next + i + 1) % len(r.streams)
			return s, false
		}
	}
	return nil, full
}

// wakeLocked wakes those who wait for room.
func (r *roster) wakeLocked() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// changesLocked is closed at the next change.
func (r *roster) changesLocked() <-chan struct{} {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}
