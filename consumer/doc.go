// Package consumer lets a service receive what the coordinator published, and act on each message once.
//
//	c, err := consumer.New(consumer.Config{
//		URL:   "amqp://guest:guest@127.0.0.1:5672/",
//		Queue: "payments",
//		Dedup: memory.New(100_000),                   // or dedup/redis: which messages were handled
//	})
//	err = c.Run(ctx, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
//		return pay(ctx, m.ID, m.Body)
//	}))
//
// Run connects, stays connected, and returns when its context ends, after what was in hand has been finished.
//
// # What a handler's answer means
//
//   - nil: the message is acknowledged and the broker forgets it.
//   - [Reject](err): the message can never be handled. The broker moves it to the queue's dead-letter exchange, or drops
//     it where the queue has none: see [Declare].
//   - any other error, and a panic: the message goes back to the queue after a pause ([Config.Retry]) and comes again.
//
// # At least once, and what deduplication can do
//
// Delivery is at least once: a message comes again when a process died before it acknowledged, when a connection broke,
// or when the coordinator published it twice because the broker's answer was lost. [Config.Dedup] drops a copy of what
// was handled to its end. It marks a message as done after the handler's effect, never before, because a mark that is
// set first loses the message when the process dies in between. The other gap remains: a process that dies after the
// effect and before the mark handles the message again. Where even that must not happen, let the effect and the mark be
// one transaction: insert the message's [Message.Key] under a unique key in the transaction that does the work, and
// return nil when it is there already.
package consumer
