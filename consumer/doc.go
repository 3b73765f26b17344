// Package consumer has what the consumers of all brokers share: messages, handlers, middleware, dead letters, and the
// stores that make one effect of all copies of a message. The packages rabbitmqconsumer, kafkaconsumer and natsconsumer
// below broker receive the messages.
//
//	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
//	err = inbox.Migrate(ctx)                          // a table beside those of the service
//	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
//		URL:   "amqp://guest:guest@127.0.0.1:5672/",
//		Queue: "payments",
//		Declare: &rabbitmqconsumer.Declare{
//			Exchange: "orders", BindingKeys: []string{"order.paid"}, DeadLetterExchange: "payments.dlx",
//		},
//	})
//	err = c.Run(ctx, inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
//		return pay(ctx, tx, m.ID, m.Body)             // the effect: everything through tx
//	}))
//
// # What a handler's answer means
//
//   - nil: the message is acknowledged.
//   - [Reject](err): the message can never be handled. The message becomes a dead letter.
//   - [ErrDuplicate]: a copy was handled before. The message is acknowledged and dropped.
//   - any other error, and a panic: the message is redelivered after a delay, and becomes a dead letter after the limit
//     that the broker's package describes.
//
// # At least once, and what deduplication can do
//
// Delivery is at least once: a message is redelivered when a process died before acknowledging, when a connection
// broke, or when the coordinator published the message twice because the broker's answer was lost. The inbox (package
// inbox/sql) makes one effect of all copies: its row of the message commits together with the effect.
//
// A service without an SQL database sets Config.Dedup instead, to package redisdedup or dedup/memory, and gives Run
// a handler of its own. A copy of a handled message is dropped then. The message is marked as done after the handler's
// effect, never before, because with an earlier mark the message is lost when the process dies in between. So a process
// that dies after the effect and before the mark handles the message again, and a memory store forgets with its
// process: use them where a second effect does no harm.
package consumer
