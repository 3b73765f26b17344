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
//   - [Reject](err): the message can never be handled. It goes to the queue's dead letters, or is dropped where the queue
//     has none: see [Declare].
//   - [ErrDuplicate]: a copy was handled before. The message is acknowledged and dropped.
//   - any other error, and a panic: the message comes again. With [Declare].Delays it waits in a queue of the broker, with
//     its count and its first cause in headers, and after the limit it is a dead letter; without, it goes back to the queue
//     after a pause ([Config.Retry]). [DeadLetters] lists dead letters and replays them.
//
// # At least once, and what deduplication can do
//
// Delivery is at least once: a message comes again when a process died before it acknowledged, when a connection broke,
// or when the coordinator published it twice because the broker's answer was lost. [Config.Dedup] drops a copy of what
// was handled to its end. It marks a message as done after the handler's effect, never before, because a mark that is
// set first loses the message when the process dies in between. The other gap remains: a process that dies after the
// effect and before the mark handles the message again. Where even that must not happen, let the effect and the mark be
// one transaction: package inbox/sql does that.
package consumer
