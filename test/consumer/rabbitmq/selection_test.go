package rabbitmq_test

import (
	"errors"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
)

// Oldest leaves each letter at its place, or takes none: a look at a list of queues must not turn a queue around.
func TestOldestKeepsTheOrder(t *testing.T) {
	t.Parallel()
	for by, arguments := range map[string]amqp.Table{
		"another program":            {amqp.QueueTypeArg: amqp.QueueTypeClassic},
		"Declare, before RabbitMQ 4": {amqp.QueueTypeArg: amqp.QueueTypeQuorum},
	} {
		t.Run("declared by "+by, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.deadLetterQueue(arguments)
			b.putLetters()
			dead := b.deadLetters()
			if _, err := dead.List(t.Context(), 4); err != nil { // a quorum queue has four letters that were given back
				t.Fatal(err)
			}
			for range 5 {
				l, err := dead.Oldest(t.Context())
				if !errors.Is(err, consumer.ErrLookReorders) && (err != nil || l.ID != "1") {
					t.Fatalf("the oldest is %q, %v", l.ID, err)
				}
			}
			if l, err := dead.List(t.Context(), 1); err != nil || l[0].ID != "1" {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}
