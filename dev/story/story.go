package story

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/envelope"
	"github.com/msghandler/msghandler/dev/demo/books"
	"github.com/msghandler/msghandler/dev/demo/orders"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/producer"
)

// courier takes parcels, but refuses one order of fifty until the courier is back.
type courier struct {
	mu      sync.Mutex
	back    bool
	refused map[int64]bool
}

func (c *courier) take(_ context.Context, order int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.back || order%50 != 21 {
		return nil
	}
	if c.refused == nil {
		c.refused = map[int64]bool{}
	}
	c.refused[order] = true
	return fmt.Errorf("no courier for order %d", order)
}

func (c *courier) returns() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.back = true
}

func (c *courier) refusals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.refused)
}

// play lets the orders flow, kills the coordinator in the middle, replays the dead letters, and waits until every order
// is completed or cancelled.
func (s *stage) play(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	placed := make(chan error, 1)
	s.background.Go(func() {
		placed <- s.orders.PlaceAll(ctx, newStream(s.Orders), parallel, &s.tally, s.fail)
	})
	s.background.Go(func() { s.confirmReceipts(ctx) })
	if err := s.announceUnknown(ctx); err != nil {
		return err
	}
	if err := s.killCoordinator(ctx); err != nil {
		return err
	}
	var failed error
	all := func(progress) bool {
		select {
		case failed = <-placed:
			return true
		default:
			return false
		}
	}
	if err := s.until(ctx, all); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("place orders: %w", failed)
	}
	s.say(fmt.Sprintf("all buyers have been here; what was never submitted is asked about, "+
		"and what is not paid within %v is cancelled", payWithin))
	if err := s.replayDeadLetters(ctx); err != nil {
		return err
	}
	return s.until(ctx, s.balanced(ctx))
}

// announceUnknown announces an event of a type that no consumer knows: it belongs among the dead letters.
func (s *stage) announceUnknown(ctx context.Context) error {
	const id = "1001-refunded"
	body, err := envelope.Marshal(envelope.Event[map[string]int64]{
		ID: id, Type: "ORDER_REFUNDED", AggregateType: "ORDER", AggregateID: "1001", OccurredAt: time.Now().UTC(),
		Payload: map[string]int64{"orderId": 1001},
	})
	if err != nil {
		return err
	}
	return s.orders.Announce(ctx, producer.Message{
		ID: id, Exchange: shop.Exchange, RoutingKey: shop.KeyChanged, ContentType: envelope.ContentType, Body: body,
	})
}

// killCoordinator kills the coordinator while orders flow, and starts another.
func (s *stage) killCoordinator(ctx context.Context) error {
	err := s.until(ctx, func(now progress) bool { return now.effects.Shipments >= s.Orders/4 })
	if err != nil {
		return err
	}
	s.coordinator.kill()
	s.say("kill -9: the coordinator is dead, with messages in hand; orders wait, nothing is lost")
	if err := s.until(ctx, pause(time.Second)); err != nil {
		return err
	}
	s.say("the coordinator is started again; what its predecessor held is taken up when the leases end")
	return s.coordinator.start(ctx)
}

// confirmReceipts has the buyers of shipped orders confirm the receipt.
func (s *stage) confirmReceipts(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			// A call fails while the coordinator is dead, and is made again. The books show an order that is never completed.
			_ = s.orders.CompleteShipped(ctx, parallel)
		case <-ctx.Done():
			return
		}
	}
}

// replayDeadLetters waits until nothing but the dead letters is left to do, lets the courier come back, and replays
// the letters that can be handled now, as "msghandler dlq replay" does.
func (s *stage) replayDeadLetters(ctx context.Context) error {
	err := s.until(ctx, func(now progress) bool {
		// The kill may have made a copy of a refused event, which is a dead letter too.
		refused := s.courier.refusals()
		return now.Pending == 0 && now.Paid == refused && now.Shipped == 0 && now.dead > refused
	})
	if err != nil {
		return err
	}
	dead, err := rabbitmqconsumer.NewDeadLetters(s.amqp, nil, shop.DeadLetterQueue)
	if err != nil {
		return err
	}
	letters, err := dead.List(ctx, s.Orders)
	if err != nil {
		return fmt.Errorf("list the dead letters: %w", err)
	}
	s.courier.returns()
	var keys []string
	for _, l := range letters {
		if strings.HasPrefix(l.Reason, "no courier") {
			keys = append(keys, l.Key())
		} else {
			s.left = append(s.left, l.Key()+": "+l.Reason)
		}
	}
	s.say(fmt.Sprintf("%d dead letters: no courier came for %d parcels, though each was tried %d times, and "+
		"an event is of a type that no consumer knows", len(letters), s.courier.refusals(), 1+len(retries)))
	if len(keys) == 0 {
		return nil
	}
	s.say(fmt.Sprintf("the courier is back; its letters are replayed, as an operator would do it:\n        "+
		"msghandler dlq replay --direct --queue %s %s ...", shop.DeadLetterQueue, keys[0]))
	if s.replayed, err = dead.Replay(ctx, consumer.ToExchanges(shop.Exchange), keys...); err != nil {
		return fmt.Errorf("replay the dead letters: %w", err)
	}
	return nil
}

// balanced is a condition that holds when the books balance. They are read only when every order has ended.
func (s *stage) balanced(ctx context.Context) func(now progress) bool {
	return func(now progress) bool {
		if now.Pending+now.Paid+now.Shipped+now.Open > 0 {
			return false
		}
		b, err := books.Read(ctx, s.database)
		return err == nil && len(b.Wrong) == 0
	}
}

// fail keeps why an order could not be placed or paid, the first of them.
func (s *stage) fail(o orders.Order, err error) {
	err = fmt.Errorf("order %d could not be placed or paid: %w", o.ID, err)
	s.failure.CompareAndSwap(nil, &err)
}

// progress is how orders and consumers stand.
type progress struct {
	orders.Status
	effects shop.Effects
	// dead is the number of dead letters.
	dead int
}

func (s *stage) progress(ctx context.Context) (now progress, err error) {
	now.dead = s.broker.Depth(shop.DeadLetterQueue)
	if now.effects, err = s.consumers.Status(ctx); err == nil {
		now.Status, err = s.orders.Status(ctx)
	}
	return now, err
}

// until looks again and again until cond holds.
func (s *stage) until(ctx context.Context, cond func(now progress) bool) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := s.progress(ctx)
		s.show(now)
		switch {
		case ctx.Err() != nil:
			return gaveUp(ctx, now)
		case err != nil:
			return err
		case cond(now):
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		case err := <-s.orders.Broken():
			return fmt.Errorf("the shop has ended: %w", err)
		case err := <-s.consuming:
			s.consuming <- err
			return fmt.Errorf("the consumers have ended: %w", err)
		}
	}
}

// gaveUp says why the demo waits no longer. The books are blamed only when there was time enough.
func gaveUp(ctx context.Context, now progress) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("interrupted")
	}
	return fmt.Errorf("%w: gave up waiting with %d orders pending, %d paid, %d shipped, %d completed, %d dead letters",
		errUnbalanced, now.Pending, now.Paid, now.Shipped, now.Completed, now.dead)
}

// pause is a condition that holds after a while.
func pause(d time.Duration) func(progress) bool {
	end := time.Now().Add(d)
	return func(progress) bool { return time.Now().After(end) }
}

// balance reads the books.
func (s *stage) balance(ctx context.Context) error {
	b, err := books.Read(ctx, s.database)
	if err != nil {
		return err
	}
	return s.writeBooks(b)
}
