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
	"github.com/msghandler/msghandler/internal/server/guard"
	"github.com/msghandler/msghandler/internal/server/submit"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxTails is how many tails may be open at once: each costs every move a look.
	maxTails = 16
	// maxQueuedMoves is how many moves wait for a slow tail; more are dropped and counted as missed.
	maxQueuedMoves = 1000
)

// tails sends the moves of this coordinator to the open calls of TailMessages. The zero value is ready.
type tails struct {
	// open is the number of tails, so that moves without tails cost no lock.
	open atomic.Int64

	mu  sync.Mutex
	all []*tail
}

// tail is an open call of TailMessages.
type tail struct {
	producer string
	states   []msghandlerv1.State
	// changed has a token when there are moves to send.
	changed chan struct{}
	// moves were not sent yet; missed counts dropped moves that were not reported yet. The lock of tails guards both.
	moves  []*adminv1.Move
	missed int64
}

var errTails = fmt.Errorf("%w: %d tails are open already", guard.ErrTooManyCalls, maxTails)

func (t *tails) join(r *adminv1.TailMessagesRequest) (*tail, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == maxTails {
		return nil, errTails
	}
	joined := &tail{producer: r.GetProducer(), states: r.GetStates(), changed: make(chan struct{}, 1)}
	t.all = append(t.all, joined)
	t.open.Add(1)
	return joined, nil
}

func (t *tails) leave(left *tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = slices.DeleteFunc(t.all, func(other *tail) bool { return other == left })
	t.open.Add(-1)
}

// Observing implements submit.Observer.
func (t *tails) Observing() bool { return t.open.Load() > 0 }

// Moved implements halfmsg.Watcher and submit.Observer. It never blocks.
func (t *tails) Moved(moves []halfmsg.Moved) {
	if !t.Observing() || len(moves) == 0 {
		return
	}
	now := timestamppb.New(time.Now())
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, move := range moves {
		for _, each := range t.all {
			each.add(move, now)
		}
	}
}

func (t *tail) add(move halfmsg.Moved, at *timestamppb.Timestamp) {
	state := msghandlerv1.State(move.State)
	switch {
	case t.producer != "" && t.producer != move.Name.Producer,
		len(t.states) > 0 && !slices.Contains(t.states, state):
		return
	case len(t.moves) == maxQueuedMoves:
		t.missed++
		return
	}
	t.moves = append(t.moves, &adminv1.Move{Time: at, Producer: move.Name.Producer, Id: move.Name.ID, State: state})
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// takeMoves returns the moves of a tail that were not sent yet.
func (t *tails) takeMoves(from *tail) *adminv1.TailMessagesResponse {
	t.mu.Lock()
	defer t.mu.Unlock()
	news := &adminv1.TailMessagesResponse{Moves: from.moves, MissedMoves: from.missed}
	from.moves, from.missed = nil, 0
	return news
}

// TailMessages implements AdminService. Its header says that the tail is open.
func (o *operators) TailMessages(
	r *adminv1.TailMessagesRequest, stream grpc.ServerStreamingServer[adminv1.TailMessagesResponse],
) error {
	const call = "TailMessages"
	if err := understood(r); err != nil {
		return o.server.fail(stream.Context(), call, err, halfmsg.None)
	}
	c := &check{}
	if r.GetProducer() != "" {
		c.producer("producer", r.GetProducer())
	}
	c.states("states", r.GetStates())
	if err := c.err(); err != nil {
		return o.server.fail(stream.Context(), call, err, halfmsg.None)
	}
	joined, err := o.server.tails.join(r)
	if err != nil {
		return o.server.fail(stream.Context(), call, err, halfmsg.None)
	}
	defer o.server.tails.leave(joined)
	err = stream.SendHeader(nil)
	for err == nil {
		select {
		case <-joined.changed:
			err = stream.Send(o.server.tails.takeMoves(joined))
		case <-stream.Context().Done():
			return o.server.ended(stream.Context())
		}
	}
	return err
}

// ended says why a stream was ended: the server stops, or the client has gone.
func (s *Server) ended(ctx context.Context) error {
	if s.stopping.Err() != nil {
		return s.fail(ctx, "TailMessages", submit.ErrStopping, halfmsg.None)
	}
	return context.Cause(ctx)
}

// states checks the states of a filter.
func (c *check) states(field string, states []msghandlerv1.State) {
	for i, state := range states {
		if _, known := msghandlerv1.State_name[int32(state)]; !known {
			c.fail(fmt.Sprintf("%s[%d]", field, i), "is no state")
		}
	}
}
