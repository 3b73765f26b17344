package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// trialLanes is how many messages may travel alone at once. More would help only where that many exchanges at once
// belong to queues that do not answer.
const trialLanes = 16

// unheard is how long the first message to an exchange may go without an answer before others follow it. A broker that
// does not take it closes the channel at once; one that is silent has taken it, for a queue that does not confirm.
const unheard = time.Second

// call is one call of Publish.
type call struct {
	publisher *Publisher
	batch     []halfmsg.Publishing
	// sending ends when nothing more may be sent, answers when nothing more is waited for.
	sending, answers context.Context
	// group waits for everything that will have an outcome.
	group    sync.WaitGroup
	outcomes *outcomes
}

// Publish sends a batch and hands over the broker's answers. See halfmsg.Publisher; messages of one batch may reach the
// broker in any order. What has no answer within a quarter of a second is handed over apart from the others.
func (p *Publisher) Publish(
	ctx context.Context, batch []halfmsg.Publishing, answered func(places []int, results []halfmsg.PublishResult),
) {
	c := &call{publisher: p, batch: batch, outcomes: newOutcomes(len(batch))}
	if err := p.enter(); err != nil {
		for i := range batch {
			c.outcomes.add(i, unsent(err))
		}
		c.outcomes.handOver(answered)
		return
	}
	defer p.calls.Done()
	sending, cancel := context.WithTimeout(ctx, p.config.ConfirmTimeout/2)
	defer cancel()
	answers, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.ConfirmTimeout)
	defer cancel()
	c.sending, c.answers = sending, answers
	// One exchange that keeps its messages waiting keeps no others waiting.
	for _, group := range byExchange(batch) {
		c.group.Go(func() {
			for _, i := range group {
				c.route(i)
			}
		})
	}
	c.outcomes.handOver(answered)
	c.group.Wait()
}

// answer takes the outcome of a message.
func (c *call) answer(i int, result halfmsg.PublishResult) {
	c.publisher.silences.heard(&c.batch[i], result)
	c.outcomes.add(i, result)
}

// byExchange gathers the indexes of messages to the same exchange.
func byExchange(batch []halfmsg.Publishing) map[string][]int {
	groups := make(map[string][]int)
	for i := range batch {
		groups[batch[i].Exchange] = append(groups[batch[i].Exchange], i)
	}
	return groups
}

// route brings one message on its way, or gives it its outcome. It returns when the next one to the same exchange may
// follow.
func (c *call) route(i int) {
	m := &c.batch[i]
	if err := check(m); err != nil {
		c.outcomes.add(i, refused(err)) // which says nothing of the broker
		return
	}
	for {
		if _, _, err := c.publisher.state(); err != nil {
			c.answer(i, unsent(err))
			return
		}
		how, tried, err := c.publisher.gate.ask(m)
		switch how {
		case not:
			c.answer(i, refused(err))
			return
		case alone:
			if c.mayTry(i) {
				c.group.Go(func() { c.answer(i, c.try(m)) })
			}
			return
		case first:
			c.group.Go(func() {
				result := c.try(m)
				c.publisher.gate.endFirst(m.Exchange)
				c.answer(i, result)
			})
			return
		case together:
			if c.send(i) {
				return
			}
		case wait:
			select {
			case <-tried:
			case <-c.sending.Done():
				c.answer(i, unsent(c.late()))
				return
			}
		}
	}
}

// send sends a message along with others and leaves its answer to a goroutine. When the lane was closed meanwhile it
// says false: the gate must be asked again, because the message may be under suspicion now.
func (c *call) send(i int) bool {
	if !c.mayTry(i) {
		return true
	}
	m := &c.batch[i]
	l, err := c.admit()
	if err != nil {
		c.answer(i, unsent(err))
		return true
	}
	f, err := l.publish(m)
	switch {
	case err == nil:
		c.group.Go(func() {
			result := c.await(l, f, false)
			c.release()
			c.answer(i, result)
		})
		return true
	case errors.Is(err, amqp.ErrClosed):
		c.release()
		<-l.done
		c.publisher.retire(l)
		return false
	default:
		c.release()
		c.answer(i, unsure(fmt.Errorf("write to the broker: %w", err)))
		return true
	}
}

// mayTry says whether a message may be sent; one that must wait for another that tries its route has its outcome.
func (c *call) mayTry(i int) bool {
	err := c.publisher.silences.ask(&c.batch[i])
	if err != nil {
		c.answer(i, unsent(err))
	}
	return err == nil
}

// admit waits for a slot and a lane to send on. The caller must release the slot.
func (c *call) admit() (*lane, error) {
	p := c.publisher
	for {
		l, changed, err := p.state()
		if err != nil {
			return nil, err
		}
		slots := p.slots
		if l == nil {
			slots = nil
		}
		select {
		case slots <- struct{}{}:
			return l, nil
		case <-changed:
		case <-c.sending.Done():
			return nil, c.late()
		}
	}
}

// state gives the lane to send on, nil while it is being opened, and what tells of the next change; an error says why
// nothing can be sent.
func (p *Publisher) state() (*lane, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lane, p.changed, p.obstacle()
}

func (c *call) release() { <-c.publisher.slots }

// late says why nothing more is sent.
func (c *call) late() error {
	return fmt.Errorf("not sent in time: %w", context.Cause(c.sending))
}

// try sends a message alone, on a lane of its own, and waits for the answer.
func (c *call) try(m *halfmsg.Publishing) halfmsg.PublishResult {
	p := c.publisher
	var l *lane
	select {
	case l = <-p.trials:
	case <-c.sending.Done():
		return unsent(c.late())
	}
	defer func() { p.trials <- l }()
	if err := p.gate.refusal(m.Exchange); err != nil {
		return refused(err) // Another one that travelled alone has found out meanwhile.
	}
	var result halfmsg.PublishResult
	l, result = c.tryOn(l, m)
	p.gate.tried(m, result)
	return result
}

// tryOn sends a message alone on the lane, or on a new one when that does not serve any more, and returns the lane.
func (c *call) tryOn(l *lane, m *halfmsg.Publishing) (*lane, halfmsg.PublishResult) {
	if _, err := c.admit(); err != nil {
		return l, unsent(err)
	}
	defer c.release()
	l, err := c.publisher.trialLane(l)
	if err != nil {
		return l, unsent(err)
	}
	f, err := l.publish(m)
	switch {
	case err == nil:
		defer time.AfterFunc(unheard, func() { c.publisher.gate.presume(m.Exchange) }).Stop()
		return l, c.await(l, f, true)
	case errors.Is(err, amqp.ErrClosed):
		return nil, unsent(err)
	default:
		return nil, unsure(fmt.Errorf("write to the broker: %w", err))
	}
}

// trialLane returns the lane if it serves on the present link, or a new one. While there is an obstacle the lane is kept.
func (p *Publisher) trialLane(l *lane) (*lane, error) {
	p.mu.Lock()
	k, obstacle := p.link, p.obstacle()
	p.mu.Unlock()
	switch {
	case obstacle != nil:
		return l, obstacle
	case l != nil && l.link == k && l.serves():
		return l, nil
	}
	return k.open(1, nil)
}

// await waits for the answer to a flight. A lane that serves no more, as nobody waits for what is on it, is retired.
func (c *call) await(l *lane, f *flight, alone bool) halfmsg.PublishResult {
	select {
	case <-f.confirmation.Done():
		return l.judge(f, alone)
	default:
	}
	select {
	case <-f.confirmation.Done():
		return l.judge(f, alone)
	case <-c.answers.Done():
		if alone || !l.abandon(f) {
			c.publisher.retire(l)
		}
		c.publisher.silences.note(f)
		return unsure(fmt.Errorf("no answer of the broker within %v", c.publisher.config.ConfirmTimeout))
	}
}
