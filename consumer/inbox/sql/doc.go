// Package sql keeps a consumer's inbox in its own database: a row for each message, in the transaction of the effect. What
// commits has its row, and a copy that comes later finds it, whatever died in between.
//
//	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
//	err = inbox.Migrate(ctx)                         // creates or upgrades the table
//	err = c.Run(ctx, inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
//		return pay(ctx, tx, m)                       // everything through tx
//	}))
//
// The row is the FIRST thing that the transaction writes. A copy that comes while the first is in hand waits in the
// database for its transaction: if it commits, the copy is a duplicate, acknowledged and dropped; if it fails, the copy is
// handled. The message is acknowledged after the commit, so a process that dies in between gets it again, finds the row
// and drops it. Config.Dedup of the consumer is not needed beside it.
//
// What is not in the database is not in the transaction: a mail that the effect sends may go out twice.
//
// Who manages the transaction calls [Inbox.Take] as its first statement, and returns the error that it gives, after a
// rollback.
//
// It speaks to PostgreSQL, MySQL, MariaDB and SQLite through database/sql and imports no driver: that is the caller's.
// SQLite has one writer at a time: open it with a busy timeout.
//
// # How long it remembers
//
// Rows are kept for Retention and then taken by [Inbox.Purge]. A copy that comes later is handled again, so Retention must
// be longer than a message may lie in a queue, in a dead-letter queue and in the coordinator.
package sql
