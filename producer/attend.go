package producer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// streamCount is at how many coordinators a producer attends at once, where there are so many: when one is killed,
	// questions reach the producer at the other until the next stream is open.
	streamCount = 2
	// parallelAnswers is how many questions one stream takes at once.
	parallelAnswers = 8
	// steady is how long a stream without a question lasts that nothing cuts again and again.
	steady = 5 * time.Second
	// endTimeout is how long close waits for answers whose context has ended.
	endTimeout = time.Second
	// maxFailure is how much of a failure's text the coordinator keeps.
	maxFailure = 300
)

var (
	// attendSteps are the pauses before another stream. They begin short, for a coordinator that is being replaced.
	attendSteps = backoff.Exponential(50*time.Millisecond, 5*time.Second)
	// otherSteps are the pauses before the next look for another coordinator, where a stream to this one is open already.
	otherSteps = backoff.Exponential(10*time.Second, 5*time.Minute)
	// refusedSteps are the pauses after a refusal that only people can end.
	refusedSteps = backoff.Exponential(5*time.Second, time.Minute)
)

// attendance keeps the streams over which coordinators ask a producer without a callback target.
type attendance struct {
	producer *Producer
	answers  *callbacks
	instance string
	// served says that the producer is also called at a port, so that Send need not wait for a stream.
	served atomic.Bool
	// settled is closed when a stream attends, or when it is known that none can.
	settled chan struct{}
	once    sync.Once

	// opening ends when no more streams are opened; ctx ends the open ones.
	opening, ctx        context.Context
	stopOpening, endAll context.CancelFunc
	keeping, attended   lifecycle.Group

	mu sync.Mutex
	// at counts the open streams of each coordinator.
	at map[string]int
	// open are the streams that are open.
	open map[*attendedStream]bool
	// trouble is why the last stream failed.
	trouble error
}

// attend begins to attend. close must follow.
func attend(p *Producer) *attendance {
	host, _ := os.Hostname() // without a name the process id says enough
	a := &attendance{
		producer: p, answers: &callbacks{producer: p}, instance: fmt.Sprintf("%.80s-%d", host, os.Getpid()),
		settled: make(chan struct{}), at: map[string]int{}, open: map[*attendedStream]bool{},
		trouble: errors.New("no coordinator has answered yet"),
	}
	a.ctx, a.endAll = context.WithCancel(context.Background())
	a.opening, a.stopOpening = context.WithCancel(a.ctx)
	for range streamCount {
		a.keeping.Go(a.keepStream)
	}
	return a
}

// closeSettled ends the wait of Send.
func (a *attendance) closeSettled() { a.once.Do(func() { close(a.settled) }) }

// await waits until a stream attends, or none can. Then the coordinator's answer to the message says more.
func (a *attendance) await(ctx context.Context, id string) error {
	if a == nil || a.served.Load() {
		return nil
	}
	select {
	case <-a.settled:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return &Error{
		Op: opSendHalf, ID: id, Code: codes.Unavailable, kind: ErrUnavailable, cause: ctx.Err(),
		Text: fmt.Sprintf("no stream for the coordinator's questions is open (Config.CallbackTarget is empty): %v",
			a.trouble),
	}
}

// keepStream keeps one stream open, until the producer is closed.
func (a *attendance) keepStream() {
	var failures, elsewhere int
	for a.opening.Err() == nil {
		s, err := a.openStream()
		switch {
		case err != nil:
			a.complain(err)
			delay := attendSteps.Delay(failures)
			if a.note(err) {
				delay = refusedSteps.Delay(failures)
			}
			failures++
			_ = backoff.Sleep(a.opening, delay) // the loop looks whether opening has ended
		case s.elsewhere:
			s.leave()
			_ = backoff.Sleep(a.opening, otherSteps.Delay(elsewhere))
			failures, elsewhere = 0, elsewhere+1
		default:
			began := time.Now()
			select {
			case <-s.away:
			case <-a.opening.Done():
			}
			if failures++; time.Since(began) > steady || s.useful.Load() {
				failures = 0
			}
			elsewhere = 0
			_ = backoff.Sleep(a.opening, attendSteps.Delay(failures))
		}
	}
}

// note keeps why no stream was opened, and reports whether only people can help.
func (a *attendance) note(err error) (refused bool) {
	a.mu.Lock()
	a.trouble = err
	a.mu.Unlock()
	switch status.Code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
	case codes.ResourceExhausted: // enough others attend, and can be asked
	default:
		return false
	}
	a.closeSettled()
	return true
}

// complain logs why no stream was opened. A coordinator that is away is no news: each call says so.
func (a *attendance) complain(err error) {
	const text = "no coordinator takes a stream of this producer; its messages wait for the next question; see the error"
	if status.Code(err) == codes.Unavailable || a.opening.Err() != nil {
		return
	}
	if skipped, due := a.producer.complaints.due(text); due {
		a.producer.complaints.log.Warn(text, "cause", err, "not_logged_before", skipped)
	}
}

// close opens no more streams, and waits until the open ones have no question. When the context ends first, close ends
// them; the coordinators ask elsewhere, or later.
func (a *attendance) close(ctx context.Context) {
	if a == nil {
		return
	}
	a.stopOpening()
	a.mu.Lock()
	for s := range a.open {
		a.attended.Go(s.leave) // it waits where the coordinator does not read
	}
	a.mu.Unlock()
	_ = a.attended.Wait(ctx) // what is left is ended
	a.endAll()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = a.keeping.Wait(ctx)
	_ = a.attended.Wait(ctx) // a marker store that does not look at its context is left behind
}

// enter notes an open stream, and reports whether another to the same coordinator is open.
func (a *attendance) enter(s *attendedStream, coordinator string) (another bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.coordinator = coordinator
	a.open[s] = true
	a.at[coordinator]++
	return a.at[coordinator] > 1
}

// leave forgets a stream.
func (a *attendance) leave(s *attendedStream) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.open[s] {
		return
	}
	delete(a.open, s)
	if a.at[s.coordinator]--; a.at[s.coordinator] == 0 {
		delete(a.at, s.coordinator)
	}
}

// hello introduces this replica. A replica whose marker store is away just now names none: it gets questions about
// messages of any store, and its answers name the store.
func (a *attendance) hello(ctx context.Context) *pb.AttendRequest {
	store, _ := a.producer.markerStore(ctx)
	return &pb.AttendRequest{Kind: &pb.AttendRequest_Hello{Hello: &pb.AttendHello{
		Producer: a.producer.config.Name, Parallel: parallelAnswers, Instance: a.instance,
		MarkerStore: store, OwnMarkers: !a.producer.can.Shared,
	}}}
}
