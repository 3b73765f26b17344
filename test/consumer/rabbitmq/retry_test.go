package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// delayed retries by delay queues.
func (b *bench) delayed(delays ...time.Duration) rabbit.Config {
	config := b.config()
	config.Declare.Delays = delays
	return config
}

// get takes the only message of a queue.
func (b *bench) get(queue string) amqp.Delivery {
	b.Helper()
	var d amqp.Delivery
	servers.Eventually(b, patience, "a message in "+queue, func() bool {
		var ok bool
		var err error
		if d, ok, err = b.ch.Get(queue, true); err != nil {
			b.Fatal(err)
		}
		return ok
	})
	return d
}

// arrival is a message with its arrival time at a handler.
type arrival struct {
	*consumer.Message
	at time.Time
}

func TestFailedMessageIsDelayedThenDead(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			config := b.delayed(200*time.Millisecond, 400*time.Millisecond)
			config.Declare.QueueType = kind
			config.Prefetch = 1
			got := make(chan arrival, 100)
			b.start(config, func(_ context.Context, m *consumer.Message) error {
				got <- arrival{m, time.Now()}
				if m.ID == "2" {
					return nil
				}
				return fmt.Errorf("cause %d", m.Retries)
			})
			b.publish(1, 2)
			first := take(t, got, "the first delivery")
			if other := take(t, got, "the message behind it"); other.ID != "2" {
				t.Fatalf("the message that failed holds the prefetch: %+v", other)
			}
			for n, delay := range config.Declare.Delays {
				again := take(t, got, "a retry")
				if again.Retries != n+1 || again.FirstCause != "cause 0" || again.Key() != "orders/1" || again.Attempt != 1 ||
					again.Exchange != "orders" || again.RoutingKey != "order.paid" || again.Headers["trace"] != "abc" {
					t.Errorf("retry %d: %+v", n+1, again.Message)
				}
				if pause := again.at.Sub(first.at); pause < delay {
					t.Errorf("retry %d came after %v", n+1, pause)
				}
				first = again
			}
			dead := b.get("payments.dead")
			for header, want := range map[string]any{
				consumer.HeaderRetries: int64(2), consumer.HeaderFirstCause: "cause 0", consumer.HeaderDeadReason: "cause 2",
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "orders", consumer.HeaderRoutingKey: "order.paid",
				"trace": "abc",
			} {
				if dead.Headers[header] != want {
					t.Errorf("%s is %v, want %v", header, dead.Headers[header], want)
				}
			}
			if dead.MessageId != "1" || dead.AppId != "orders" || string(dead.Body) != "pay" ||
				dead.ContentType != "text/plain" {
				t.Errorf("the dead letter is %+v", dead)
			}
			servers.Eventually(t, patience, "an empty queue", func() bool { return b.unsettled("payments") == 0 })
			if len(got) != 0 {
				t.Errorf("%d deliveries too many", len(got))
			}
		})
	}
}

func TestLastDelayRepeatsUpToLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.delayed(20*time.Millisecond, 50*time.Millisecond)
	config.Declare.RetryLimit = 4
	calls := make(chan int, 100)
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		calls <- m.Retries
		panic(strings.Repeat("long ", 1000))
	})
	b.publish(1, 1)
	dead := b.get("payments.dead")
	cause, _ := dead.Headers[consumer.HeaderFirstCause].(string)
	if dead.Headers[consumer.HeaderRetries] != int64(4) || len(cause) != 1000 || !strings.HasPrefix(cause, "panic: long") {
		t.Errorf("%v retries, first cause of %d bytes", dead.Headers[consumer.HeaderRetries], len(cause))
	}
	if len(calls) != 5 {
		t.Errorf("handled %d times, want once and 4 retries", len(calls))
	}
}

func TestRejectedMessagesDeadLetterHasCause(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := make(chan string, 10)
	b.start(b.delayed(time.Hour), func(_ context.Context, m *consumer.Message) error {
		calls <- m.ID
		return consumer.Reject(errors.New("no such type"))
	})
	b.publish(1, 1)
	dead := b.get("payments.dead")
	if dead.Headers[consumer.HeaderDeadReason] != "rejected: no such type" ||
		dead.Headers[consumer.HeaderRetries] != int64(0) ||
		dead.Headers[consumer.HeaderFirstCause] != "rejected: no such type" || len(calls) != 1 {
		t.Errorf("%d calls, headers %v", len(calls), dead.Headers)
	}
}

// The delay queue and the dead-letter exchange are deleted: a message that cannot be moved returns to the queue.
func TestUnmovableMessageIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	calls := make(chan string, 1000)
	config := b.delayed(time.Hour)
	config.DepthInterval = time.Hour // nothing is declared again meanwhile
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		calls <- m.ID
		if m.ID == "1" {
			return errors.New("the database is away")
		}
		return consumer.Reject(errors.New("nonsense"))
	})
	for _, queue := range []string{"payments.retry.1h0m0s", "payments.dead"} {
		if _, err := b.ch.QueueDelete(queue, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	b.publish(1, 2)
	for seen := map[string]int{}; seen["1"] < 2 || seen["2"] < 2; {
		seen[take(t, calls, "both are redelivered")]++
	}
}

func TestDelayedMessagesSurviveABrokerRestart(t *testing.T) {
	t.Parallel()
	node := servers.PrivateRabbitMQ(t)
	b := newBenchAt(t, node.Vhost())
	got, triggers := make(chan *consumer.Message, 10), make(chan string, 10)
	b.start(b.delayed(5*time.Second), func(_ context.Context, m *consumer.Message) error {
		if strings.HasPrefix(m.ID, "trigger") {
			triggers <- m.ID
			return nil
		}
		got <- m
		if m.Retries == 0 {
			return errors.New("not now")
		}
		return nil
	})
	trigger, err := rabbit.NewTrigger(b.vhost.URL, nil, "payments", 6*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trigger.Close)
	send := func(id string) error {
		return trigger.Send(t.Context(), &consumer.Message{ID: id, Producer: "orders"})
	}
	if err := send("trigger-1"); err != nil {
		t.Fatal(err)
	}
	// A kill may lose a quorum queue that was declared a moment before; a clean stop persists the queue.
	node.Stop()
	node.Start()
	b.waitForQueue("payments")
	b = newBenchOn(t, b)
	b.publish(1, 1)
	take(t, got, "the first delivery")
	servers.Eventually(t, patience, "it waits", func() bool { return b.depth("payments.retry.5s") == 1 })
	servers.Eventually(t, patience, "a trigger is sent", func() bool { return send("trigger-2") == nil })
	node.Kill()
	node.Start()
	m := take(t, got, "the retry")
	for m.Retries == 0 { // the acknowledgement may be lost with the broker: then the first copy is redelivered as well
		m = take(t, got, "the retry")
	}
	if m.Retries != 1 || m.FirstCause != "not now" {
		t.Errorf("%+v", m)
	}
	for came := map[string]bool{}; !came["trigger-1"] || !came["trigger-2"]; {
		came[take(t, triggers, "both triggers")] = true
	}
}

// typeOfDefaultQueue is the broker's name for the type of a queue that was declared without a type: before RabbitMQ
// 4.0 there is none.
func typeOfDefaultQueue(t *testing.T) string {
	t.Helper()
	conn, err := amqp.Dial(servers.RabbitMQ(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if version, _ := conn.Properties["version"].(string); strings.HasPrefix(version, "3.") {
		return "none"
	}
	return "classic"
}

func TestMismatchNamesArgumentThatDiffers(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		existing func(ch *amqp.Channel) error
		want     rabbit.MismatchError
	}{
		"the queue's type": {
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare("payments", true, false, false, false, amqp.Table{
					"x-dead-letter-exchange": "dead", "x-dead-letter-routing-key": "payments",
				})
				return err
			},
			rabbit.MismatchError{
				Kind: "queue", Name: "payments", Argument: "x-queue-type", Declared: "quorum",
				Existing: typeOfDefaultQueue(t),
			},
		},
		"its dead-letter exchange": {
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare("payments", true, false, false, false, amqp.Table{
					"x-queue-type": "quorum", "x-dead-letter-exchange": "other", "x-dead-letter-routing-key": "payments",
				})
				return err
			},
			rabbit.MismatchError{
				Kind: "queue", Name: "payments", Argument: "x-dead-letter-exchange", Declared: "dead", Existing: "other",
			},
		},
		"a delay queue's": {
			func(ch *amqp.Channel) error {
				_, err := ch.QueueDeclare("payments.retry.1s", true, false, false, false, amqp.Table{
					"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "payments",
					"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-message-ttl": int64(7),
				})
				return err
			},
			rabbit.MismatchError{
				Kind: "queue", Name: "payments.retry.1s", Argument: "x-message-ttl", Declared: "1000", Existing: "7",
			},
		},
		"the exchange's type": {
			func(ch *amqp.Channel) error {
				return ch.ExchangeDeclare("orders", "fanout", true, false, false, false, nil)
			},
			rabbit.MismatchError{Kind: "exchange", Name: "orders", Argument: "type", Declared: "topic", Existing: "fanout"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if err := row.existing(b.ch); err != nil {
				t.Fatal(err)
			}
			if major, _ := b.version(); major >= 4 && row.want.Existing == "none" {
				row.want.Existing = "classic" // RabbitMQ 4 notes the type of each queue
			}
			c, err := rabbit.New(b.delayed(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err = c.Run(ctx, consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }))
			var got *rabbit.MismatchError
			if !errors.As(err, &got) {
				t.Fatalf("Run: %v", err)
			}
			if got.Kind != row.want.Kind || got.Name != row.want.Name || got.Argument != row.want.Argument ||
				!strings.Contains(got.Declared, row.want.Declared) || !strings.Contains(got.Existing, row.want.Existing) {
				t.Errorf("%v; want %v", got, &row.want)
			}
		})
	}
}
