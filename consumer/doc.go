// Package consumer lets a service receive messages of the coordinator, and act on each message once.
//
//	c, err := consumer.New(consumer.Config{
//		URL:   "amqp://guest:guest@127.0.0.1:5672/",
//		Queue: "payments",
//		Dedup: memory.New(100_000),                   // or dedup/redis: remembers handled messages
//	})
//	err = c.Run(ctx, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
//		return pay(ctx, m.ID, m.Body)
//	}))
//
// Run connects, reconnects, and returns when its context ends, after running handlers have finished.
//
// # What a handler's answer means
//
//   - nil: the message is acknowledged and the broker deletes the message.
//   - [Reject](err): the message can never be handled. The message goes to the queue's dead letters, or is dropped if
//     the queue has none: see [Declare].
//   - [ErrDuplicate]: a copy was handled before. The message is acknowledged and dropped.
//   - any other error, and a panic: the message is redelivered. With [Declare].Delays the message waits in a queue of
//     the broker, with its count and its first cause in headers, and becomes a dead letter after the limit. Without
//     Delays the message goes back to the queue after a pause ([Config.Retry]). [DeadLetters] lists dead letters and
//     replays them.
//
// # At least once, and what deduplication can do
//
// Delivery is at least once: a message is redelivered when a process died before acknowledging, when a connection
// broke, or when the coordinator published the message twice because the broker's answer was lost. [Config.Dedup] drops
// a copy of a handled message. The message is marked as done after the handler's effect, never before, because with an
// earlier mark the message is lost when the process dies in between. The other gap remains: a process that dies after
// the effect and before the mark handles the message again. To close this gap too, let the effect and the mark be one
// transaction: see package inbox/sql.
package consumer
