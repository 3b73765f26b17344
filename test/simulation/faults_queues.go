package simulation

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// queueFaults are those of a broker that stops or loses what it holds. What it loses is excused message by message: see
// losses.
var queueFaults = []fault{
	{name: "alarms", chance: 20, start: alarmBroker},
	{name: "forgetful broker", chance: 10, start: judging(amqpbroker.Forget)},
	{name: "queues deleted", chance: 10, start: deleteQueues, excuse: excuse{refused: true, markers: true}},
}

// alarmBroker has the broker take no publishings for a while, as without memory or disk space.
func alarmBroker(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		w.Ledger.Fault("the broker has an alarm")
		w.note("the broker has an alarm")
		end := w.Broker.Alarm("low on memory")
		_ = sleep(ctx, d.long("length", 100*time.Millisecond, time.Minute))
		end()
	})
}

// deleteQueues has an operator of the broker delete all queues, and declare them again later.
func deleteQueues(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		w.Ledger.Fault("all queues are deleted")
		w.note("all queues are deleted")
		if err := w.onBroker(removeQueues); err != nil {
			w.report("the queues are not deleted: %v", err)
		}
		w.losses.empty()
		_ = sleep(ctx, d.within("absence", 0, 20*time.Second))
		if err := w.onBroker(declareQueues); err != nil {
			w.report("the queues are not declared again: %v", err)
		}
		w.losses.empty() // a message may have come to one of the queues alone
	})
}

// removeQueues deletes the queues of the consumers.
func removeQueues(channel *amqp.Channel) error {
	for _, name := range []string{queue, effectQueue} {
		if _, err := channel.QueueDelete(name, false, false, false); err != nil {
			return err
		}
	}
	return nil
}
