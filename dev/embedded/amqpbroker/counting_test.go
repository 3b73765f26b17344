package amqpbroker_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// The versions of RabbitMQ differ in counting failed deliveries, so the count is not in test/amqpconformance. This is
// the count of 4.3.6, as observed.
func TestDeliveryCountsMatchRabbitMQ43(t *testing.T) {
	t.Parallel()
	giveBack := map[string]func(d amqp.Delivery) error{
		"nack":   func(d amqp.Delivery) error { return d.Nack(false, true) },
		"reject": func(d amqp.Delivery) error { return d.Reject(true) },
		"close":  func(amqp.Delivery) error { return nil },
	}
	for name, c := range map[string]struct {
		limit any
		way   string
		// looks is how often the message is seen in 30 tries.
		looks int
	}{
		"nacked":                    {nil, "nack", 30},
		"rejected":                  {nil, "reject", 21},
		"left behind":               {nil, "close", 21},
		"rejected, limit 2":         {int64(2), "reject", 3},
		"rejected, without a limit": {int64(-1), "reject", 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dial(t, start(t, amqpbroker.Config{}))
			ch := quorumQueue(t, conn, c.limit)
			if !acked(t, publish(t, ch, amqp.Publishing{Body: []byte("x")})) {
				t.Fatal("not acknowledged")
			}
			looks := 0
			for range 30 {
				ch, err := conn.Channel()
				if err != nil {
					t.Fatal(err)
				}
				d, found, err := ch.Get("q", false)
				if err != nil {
					t.Fatal(err)
				}
				if !found {
					break
				}
				if n, _ := d.Headers["x-acquired-count"].(int64); n != int64(looks) {
					t.Errorf("look %d has the headers %v", looks, d.Headers)
				}
				looks++
				if err := giveBack[c.way](d); err != nil {
					t.Fatal(err)
				}
				if err := ch.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if looks != c.looks {
				t.Errorf("seen %d times, want %d", looks, c.looks)
			}
		})
	}
}

// quorumQueue makes a quorum queue q with a delivery limit, or with the default one.
func quorumQueue(t *testing.T, conn *amqp.Connection, limit any) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	arguments := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
	if limit != nil {
		arguments["x-delivery-limit"] = limit
	}
	if err == nil {
		_, err = ch.QueueDeclare("q", true, false, false, false, arguments)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
