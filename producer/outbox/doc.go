// Package outbox sends what a producer's local message table holds: rows that were committed together with the business
// they tell of, by the Enqueue or Commit of package producer/marker/sql.
//
//	relay, err := outbox.New(outbox.Config{Table: markers, Sender: outbox.ToCoordinator(p)})
//	go relay.Run(ctx)
//	err = markers.Commit(ctx, message, func(ctx context.Context, tx *sql.Tx) error { ... })
//
// The business commits whether the coordinator is there or not. A relay looks every few seconds, and at once after a
// commit in its own process. Every instance of the producer may run one: each claims rows for a time (Lock) in a short
// transaction, and no row is claimed twice at the same time. What a relay that died held is claimed by another when the
// lock ends; such a message may be sent twice, and says so.
//
// What cannot be reached costs a message nothing: it waits. What is refused is tried again after growing delays, and
// after MaxAttempts it has failed: an ERROR line for its batch, a number in the table's Counts, a call of the Observer, and
// a Retry when its cause is mended.
//
// There are two senders. [ToCoordinator] hands messages to msghandler, which asks for their markers and publishes them;
// it is asked for the same message again until it has let the marker go. Package outbox/rabbitmq publishes straight to
// the broker with publisher confirms, for who wants a plain outbox.
package outbox
