// Package sql keeps a consumer's inbox in its own database: a row for each message, in the transaction of the effect. A
// committed effect has its row, and a later copy finds the row, whichever process died in between.
//
//	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
//	err = inbox.Migrate(ctx)                         // creates the table
//	err = c.Run(ctx, inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
//		return pay(ctx, tx, m)                       // everything through tx
//	}))
//
// The row is the FIRST thing that the transaction writes. A copy that arrives during the first transaction waits in
// the database: if the transaction commits, the copy is a duplicate, acknowledged and dropped; if the transaction
// fails, the copy is handled. The message is acknowledged after the commit: when the process dies in between, the
// message is redelivered, its row is found, and the message is dropped. Config.Dedup of the consumer is not needed.
//
// Effects outside of the database are outside of the transaction: a mail of the effect may go out twice.
//
// If your code manages the transaction, call [Inbox.Take] as its first statement, and return the error of Take after a
// rollback.
//
// The package speaks to PostgreSQL, MySQL, MariaDB and SQLite through database/sql and imports no driver: import yours.
// SQLite has one writer at a time: open SQLite with a busy timeout.
//
// # How long messages are remembered
//
// Rows are kept for Retention and then removed, by [Inbox.Handler] or [Inbox.Purge]. A later copy is handled again, so
// Retention must be longer than a message may lie in a queue, in a dead-letter queue and in the coordinator.
package sql
