// Package rabbitmqconsumer lets a service receive messages from a queue of RabbitMQ, with the handlers, middleware and
// inboxes of package consumer.
//
//	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
//		URL:   "amqp://guest:guest@127.0.0.1:5672/",
//		Queue: "payments",
//		Declare: &rabbitmqconsumer.Declare{
//			Exchange: "orders", BindingKeys: []string{"order.paid"}, DeadLetterExchange: "payments.dlx",
//		},
//	})
//	err = c.Run(ctx, inbox.Handler(pay))
//
// Run connects, reconnects, and returns when its context ends, after running handlers have finished.
//
// # What a handler's answer means
//
//   - nil: the message is acknowledged and the broker deletes the message.
//   - consumer.Reject(err): the message can never be handled. The message goes to the queue's dead letters, or is
//     dropped if the queue has none: see [Declare].
//   - consumer.ErrDuplicate: a copy was handled before. The message is acknowledged and dropped.
//   - any other error, and a panic: the message is redelivered. With [Declare].Delays the message waits in a queue of
//     the broker, with its count and its first cause in headers, and becomes a dead letter after the limit. Without
//     Delays the message goes back to the queue after a pause ([Config.Retry]). [NewDeadLetters] lists dead letters and
//     replays them.
package rabbitmqconsumer
