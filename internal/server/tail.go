package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxTails is how many may listen at once: each costs every move a look.
	maxTails = 16
	// maxTold is how many moves wait for one that listens; more are missed.
	maxTold = 1000
)

// tails tell those who listen to TailMessages what this instance does. The zero value is ready.
type tails struct {
	// listening is how many listen, so that moves to which nobody does cost no lock.
	listening atomic.Int64

	mu  sync.Mutex
	all []*tail
}

// tail is one that listens.
type tail struct {
	producer string
	states   []msghandlerv1.State
	// bell rings when there is something new to tell.
	bell chan struct{}
	// moves and missed are what it was not sent yet. The lock of tails guards them.
	moves  []*msghandlerv1.Move
	missed int64
}

var errTails = fmt.Errorf("%w: %d listen to TailMessages already", errTooMany, maxTails)

func (t *tails) join(r *msghandlerv1.TailMessagesRequest) (*tail, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == maxTails {
		return nil, errTails
	}
	one := &tail{producer: r.GetProducer(), states: r.GetStates(), bell: make(chan struct{}, 1)}
	t.all = append(t.all, one)
	t.listening.Add(1)
	return one, nil
}

func (t *tails) leave(one *tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(other *tail) bool { return other == one })
	t.listening.Add(-1)
}

// results tells of a batch in which each message that has no error has reached a state.
func (t *tails) results(results []halfmsg.Result, name func(i int) halfmsg.Name) {
	if t.listening.Load() == 0 {
		return
	}
	var moves []halfmsg.Moved
	for i, r := range results {
		if r.Err == nil {
			moves = append(moves, halfmsg.Moved{Name: name(i), State: r.State})
		}
	}
	t.tell(moves)
}

// tell tells of moves. It never blocks.
func (t *tails) tell(moves []halfmsg.Moved) {
	if t.listening.Load() == 0 || len(moves) == 0 {
		return
	}
	now := timestamppb.New(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, move := range moves {
		for _, one := range t.all {
			one.take(move, now)
		}
	}
}

func (one *tail) take(move halfmsg.Moved, at *timestamppb.Timestamp) {
	state := msghandlerv1.State(move.State)
	switch {
	case one.producer != "" && one.producer != move.Name.Producer,
		len(one.states) > 0 && !slices.Contains(one.states, state):
		return
	case len(one.moves) == maxTold:
		one.missed++
		return
	}
	one.moves = append(one.moves, &msghandlerv1.Move{Time: at, Producer: move.Name.Producer, Id: move.Name.ID, State: state})
	select {
	case one.bell <- struct{}{}:
	default:
	}
}

// news hands over what was not sent yet.
func (t *tails) news(one *tail) *msghandlerv1.TailMessagesResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := &msghandlerv1.TailMessagesResponse{Moves: one.moves, Missed: one.missed}
	one.moves, one.missed = nil, 0
	return news
}

// TailMessages implements AdminService. Its header says that it listens.
func (s *operators) TailMessages(
	r *msghandlerv1.TailMessagesRequest, stream grpc.ServerStreamingServer[msghandlerv1.TailMessagesResponse],
) error {
	const call = "TailMessages"
	if err := understood(r); err != nil {
		return s.fail(call, err, halfmsg.None)
	}
	c := &check{}
	if r.GetProducer() != "" {
		c.producer("producer", r.GetProducer())
	}
	c.states("states", r.GetStates())
	if err := c.err(); err != nil {
		return s.fail(call, err, halfmsg.None)
	}
	one, err := s.tails.join(r)
	if err != nil {
		return s.fail(call, err, halfmsg.None)
	}
	defer s.tails.leave(one)
	err = stream.SendHeader(nil)
	for err == nil {
		select {
		case <-one.bell:
			err = stream.Send(s.tails.news(one))
		case <-stream.Context().Done():
			return s.ended(stream.Context())
		}
	}
	return err
}

// ended says why a stream was ended: the server stops, or the client has gone.
func (s *Server) ended(ctx context.Context) error {
	if s.stopping.Err() != nil {
		return s.fail("TailMessages", errStopping, halfmsg.None)
	}
	return context.Cause(ctx)
}

// states checks those that a filter names.
func (c *check) states(field string, states []msghandlerv1.State) {
	for i, state := range states {
		if _, known := msghandlerv1.State_name[int32(state)]; !known {
			c.fail(fmt.Sprintf("%s[%d]", field, i), "is no state")
		}
	}
}
