package rabbitmq_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// A queue is suspended by rabbitmqctl, for which a node must be the test's own. A node starts in ten seconds, so both
// tests of such queues share one.
func TestQueueThatDoesNotConfirm(t *testing.T) {
	t.Parallel()
	broker := servers.PrivateRabbitMQ(t)
	t.Run("confirmed messages are sent after the deadline", func(t *testing.T) {
		confirmedMessageIsSentAfterDeadline(t, broker, "stuck-1")
	})
	t.Run("a stalled queue holds one batch", func(t *testing.T) { stalledQueueHoldsOneBatch(t, broker, "stuck-2") })
}

// suspendQueue suspends the process of a queue: the queue takes messages and does not confirm.
func suspendQueue(broker *servers.RabbitServer, queue string) {
	lookup := fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>))`, queue)
	broker.Ctl("eval", lookup+`, sys:suspend(amqqueue:get_pid(Q)).`)
}

// The first of a batch is never confirmed, and so the others are looked at when the time is over.
func confirmedMessageIsSentAfterDeadline(t *testing.T, broker *servers.RabbitServer, stuck string) {
	ch := channel(t, broker.URL)
	declare(t, ch, stuck)
	declare(t, ch, "paid")
	suspendQueue(broker, stuck)
	batch := []sqlmarker.Queued{queued("0", stuck)}
	want := []outbox.Fate{outbox.Unreached}
	for i := range 50 {
		batch, want = append(batch, queued(fmt.Sprint(i+1), "paid")), append(want, outbox.Sent)
	}
	// A busy broker may need longer for all the others than the time that they have.
	within := 500 * time.Millisecond
	servers.Eventually(t, 2*time.Minute, "all but the first are sent", func() bool {
		within *= 2
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return slices.Equal(fates(sender(t, broker.URL).Send(ctx, batch)), want) // one that knows nothing of the queue yet
	})
}

// The first time such a message holds its batch; then nothing is sent to that queue for a while, and no batch waits.
func stalledQueueHoldsOneBatch(t *testing.T, broker *servers.RabbitServer, stuck string) {
	ch, s := channel(t, broker.URL), sender(t, broker.URL)
	declare(t, ch, stuck)
	declare(t, ch, "paid")
	suspendQueue(broker, stuck)
	batch := []sqlmarker.Queued{queued("0", stuck)}
	for i := range 50 {
		batch = append(batch, queued(fmt.Sprint(i+1), "paid"))
	}
	within := 500 * time.Millisecond
	servers.Eventually(t, 2*time.Minute, "all but the first are sent", func() bool {
		within *= 2
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return !slices.Contains(fates(s.Send(ctx, batch))[1:], outbox.Unreached)
	})
	// It returns when the others are confirmed, long before its time is over.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := s.Send(ctx, batch)
	if ctx.Err() != nil {
		t.Error("it waited for the queue that does not confirm")
	}
	if results[0].Fate != outbox.Early || results[0].In <= 0 || results[0].Err == nil {
		t.Errorf("for the queue that does not confirm: %+v", results[0])
	}
	for i, fate := range fates(results[1:]) {
		if fate != outbox.Sent {
			t.Errorf("message %d is %v", i+1, fate)
		}
	}
}

// A broker closes the channel for one message, and then says nothing any more: the others are to be sent one by one.
func TestSendReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	declare(t, channel(t, url), "paid")
	proxy := wire.RabbitMQ(t, wire.Host(t, url))
	var closed atomic.Bool
	proxy.On(func(e wire.Event) wire.Act {
		if closed.Load() {
			return wire.Silence
		}
		if e.Name == "channel.close" {
			closed.Store(true)
		}
		return wire.Pass
	})
	bad := queued("bad", "x")
	bad.Message.Exchange = "no such exchange"
	batch := []sqlmarker.Queued{bad}
	for i := range 100 {
		batch = append(batch, queued(fmt.Sprint(i), "paid"))
	}
	s := sender(t, proxy.URL(url))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	done := make(chan []outbox.Result, 1)
	go func() { done <- s.Send(ctx, batch) }()
	select {
	case results := <-done:
		for i, r := range results {
			if r.Fate == outbox.Unreached && r.Err == nil {
				t.Errorf("message %d does not say why", i)
			}
		}
	case <-time.After(time.Minute):
		t.Error("it does not return")
		proxy.On(nil)
		<-done
	}
}
