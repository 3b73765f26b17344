package publish

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// Call is one call of Publish.
type Call struct {
	Batch []Message
	// Sending ends when nothing more may be sent, Answers when no answer is waited for any more.
	Sending, Answers context.Context

	// work has the goroutines of the call: it waits for every message that will have an outcome.
	work lifecycle.Group
	// ending waits for the end of work after a panic.
	ending lifecycle.Group
	routes *Routes
	// limit is how long answers are waited for.
	limit    time.Duration
	outcomes *outcomes
	// slots are those of all calls, and held is how many of them this call has.
	slots chan struct{}
	mu    sync.Mutex
	held  int
}

// Call publishes a batch, as Publisher asks for it. begin returns how the messages to one exchange are sent, and what
// to do when all have an outcome. A message has one by Add or Settle, once. Exchanges are sent to concurrently: an
// exchange that keeps its messages waiting keeps no others waiting.
//
// A panic in a part of the call ends the call once the other parts have ended: Call panics with a lifecycle.PanicError,
// and messages that were not handed over have no outcome. Copies of them may be out.
func (l *Life[C]) Call(
	ctx context.Context, batch []Message, answered func(places []int, results []Result),
	begin func(*Call) (send func(places []int), end func()),
) {
	c := &Call{
		Batch: batch, routes: l.Routes, limit: l.Config.ConfirmTimeout, outcomes: newOutcomes(len(batch)), slots: l.slots,
	}
	if err := l.enter(); err != nil {
		for i := range batch {
			c.Add(i, Unsent.Because(err))
		}
		c.outcomes.handOver(answered)
		return
	}
	defer l.calls.End()
	if deadline, has := ctx.Deadline(); has {
		c.limit = max(0, min(c.limit, time.Until(deadline)))
	}
	var cancel context.CancelFunc
	c.Sending, cancel = context.WithTimeout(ctx, c.limit/2)
	defer cancel()
	c.Answers, cancel = context.WithTimeout(context.WithoutCancel(ctx), c.limit)
	defer cancel()
	send, end := begin(c)
	defer end()
	for _, places := range byExchange(batch) {
		c.Go(func() { send(places) })
	}
	c.outcomes.handOver(answered)
	_ = c.work.Wait(context.Background())
	_ = c.ending.Wait(context.Background())
	c.raise()
}

// Go runs a part of the call.
func (c *Call) Go(part func()) {
	c.work.Go(func() { c.Protect(part) })
}

// Protect runs a part of the call in the goroutine of the caller, such as a library's.
func (c *Call) Protect(part func()) {
	failure := lifecycle.Recovered(part)
	if failure != nil && c.outcomes.fail(failure) {
		c.ending.Go(func() {
			_ = c.work.Wait(context.Background())
			c.outcomes.end()
		})
	}
}

// Failed says whether a part of the call has panicked.
func (c *Call) Failed() bool {
	failure, _ := c.outcomes.failed()
	return failure != nil
}

// raise panics where a part of the call has. The messages without an outcome give back what they hold.
func (c *Call) raise() {
	failure, places := c.outcomes.failed()
	if failure == nil {
		return
	}
	for _, place := range places {
		c.routes.Release(&c.Batch[place])
	}
	for c.Release() {
	}
	panic(failure)
}

// byExchange gathers the places of messages to the same exchange, in their order.
func byExchange(batch []Message) map[string][]int {
	groups := make(map[string][]int)
	for i := range batch {
		groups[batch[i].Exchange] = append(groups[batch[i].Exchange], i)
	}
	return groups
}

// Add records the result of a message that says nothing of its route.
func (c *Call) Add(place int, result Result) { c.outcomes.add(place, result) }

// Settle records the result of a message, and what it says of the message's route.
func (c *Call) Settle(place int, result Result) {
	m := &c.Batch[place]
	switch result.Outcome {
	case Acked, Refused:
		c.routes.Answered(m)
	default:
		c.routes.Release(m)
	}
	c.outcomes.add(place, result)
}

// Late says why nothing more is sent; nil while messages are sent.
func (c *Call) Late() error {
	if c.Sending.Err() == nil {
		return nil
	}
	return fmt.Errorf("not sent in time: %w", context.Cause(c.Sending))
}

// Unanswered is the result of a message without an answer in time.
func (c *Call) Unanswered() Result {
	return Unsure.Because(fmt.Errorf("no answer of the broker within %v", c.limit.Round(time.Millisecond)))
}

// Decide finds out how a message may be sent, and waits while another message probes the exchange. A message that
// cannot be sent is settled; then the state is zero.
func (l *Life[C]) Decide(c *Call, place int) State {
	m := &c.Batch[place]
	for {
		if _, _, err := l.State(); err != nil {
			c.Settle(place, Unsent.Because(err))
			return 0
		}
		decision := l.Routes.Decide(m)
		switch decision.State {
		case Rejected:
			c.Settle(place, Refused.Because(decision.Err))
			return 0
		case Stalled:
			c.Settle(place, Unsent.Because(decision.Err))
			return 0
		case Pending:
			select {
			case <-decision.ProbeEnded:
			case <-c.Sending.Done():
				c.Settle(place, Unsent.Because(c.Late()))
				return 0
			}
		default:
			return decision.State
		}
	}
}

// Admit waits for a slot and for something to send on. The caller must call Call.Release once, when the message is not
// in flight any more.
func (l *Life[C]) Admit(c *Call) (on C, err error) {
	var none C
	for {
		on, changed, err := l.State()
		if err == nil {
			err = c.Late()
		}
		if err != nil {
			return none, err
		}
		slots := l.slots
		if on == none {
			slots = nil
		}
		select {
		case slots <- struct{}{}:
			c.mu.Lock()
			c.held++
			c.mu.Unlock()
			return on, nil
		case <-changed:
		case <-c.Sending.Done():
		}
	}
}

// Release gives a slot back; false when the call has none.
func (c *Call) Release() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == 0 {
		return false
	}
	c.held--
	<-c.slots
	return true
}
