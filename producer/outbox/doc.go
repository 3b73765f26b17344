// Package outbox sends the messages of a producer's local message table: rows that were committed together with the
// business, by the Enqueue or Commit of package producer/marker/sql.
//
//	relay, err := outbox.New(outbox.Config{Table: markers, Sender: outbox.ToCoordinator(p)})
//	go relay.Run(ctx)
//	err = markers.Commit(ctx, message, func(ctx context.Context, tx *sql.Tx) error { ... })
//
// The business commits whether the coordinator is there or not. A relay looks every few seconds, and at once after a
// commit in its own process. Every instance of the producer may run a relay: each claims rows for a time (Lock) in a
// short transaction, and no row is claimed twice at the same time. When a relay dies, another claims its rows after the
// lock ends; such a message may be sent twice, and the second copy has a higher Claims.
//
// An unreachable coordinator or broker uses up no attempt: the message waits. A refused message is retried after
// growing delays; Config.Retries names some. After MaxAttempts the message has failed: an ERROR line for its batch, a
// number in the table's Backlog, a call of the Observer, and a Retry once the cause is fixed.
//
// Package outbox/shards divides the shards of a table among several relays.
//
// There are four senders. [ToCoordinator] hands messages to msghandler, which asks for their markers and publishes
// them; a message is handed over again until the coordinator has deleted the marker. Packages rabbitmqoutbox,
// kafkaoutbox and natsoutbox publish straight to the broker and wait for its acknowledgement: a plain outbox.
package outbox
