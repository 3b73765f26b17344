// Package sql keeps business markers in the producer's own database, in the transaction of the business: a committed
// transaction has its marker, and any other has none.
//
//	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
//	err = markers.Migrate(ctx)                       // creates the table
//	p, err := producer.New(producer.Config{Name: "orders", Markers: markers, ...})
//	err = markers.Send(ctx, p, message, func(ctx context.Context, tx *sql.Tx) error {
//		return pay(ctx, tx, order)                   // everything through tx
//	})
//
// The package speaks to PostgreSQL, MySQL, MariaDB and SQLite through database/sql and imports no driver: import yours.
//
// # The barrier
//
// The marker is the FIRST thing that the transaction writes. When the coordinator asks about a message for the last
// time and there is no marker, the store tries to write a rolled-back marker under the same key: a tombstone. If a
// transaction with the marker is running, the database makes the tombstone wait for this transaction. The transaction
// commits, and the answer is COMMITTED; or fails, and the tombstone is written; or takes longer than LockTimeout, and
// the answer is UNKNOWN, on SQLite UNAVAILABLE. Once the tombstone is there, a late transaction fails at its marker
// with [producer.ErrRolledBack], before any other statement. So COMMITTED and ROLLED_BACK both stay true, and absence
// alone is never a verdict.
//
// A transaction without its marker would lose this protection. After every business the SDK looks for the marker, and
// without a marker the call ends with [producer.ErrUnmarked].
//
// The same barrier finds the outcome of a commit whose answer was lost: Send returns nil if the marker is there, and is
// certain that nothing was committed if the tombstone is. No code rolls a message back after its commit was tried.
//
// # A database that is busy
//
// Until the marker is written the business has not begun. [Store.Send], [Store.InTx] and [Store.Commit] retry the begin
// after a lock, a deadlock, a serialization failure or a lost connection, for [Config.BeginTimeout] and as long as the
// context lasts. Then the error wraps [producer.ErrSendAgain]: the half message stays PENDING, and the same id may be
// sent again until the coordinator's last question. So it is after any other error before the marker, except those that
// are known to be permanent, such as a missing table. An error of the business that passes wraps ErrSendAgain too, and
// the business is not run again. An error of COMMIT is never retried.
//
// # Your own transactions
//
// If your code manages the transaction, call [Store.Mark] as its first statement, between [producer.Producer.SendHalf]
// and [producer.Producer.Submit]:
//
//	state, err := p.SendHalf(ctx, message)           // go on only with StatePending and no error
//	tx, err := db.BeginTx(ctx, nil)
//	err = markers.Mark(ctx, tx, message.ID)          // an error: tx.Rollback(); ErrSendAgain: the same id once more
//	...
//	if err = tx.Commit(); err != nil {
//		err = markers.Settle(ctx, message.ID, err)   // nil: committed after all
//	}
//	_, err = p.Submit(ctx, message.ID)
//
// # The local message table
//
// The marker's row may hold the message itself. Then the business needs no coordinator: [Store.Enqueue] writes marker
// and message into your transaction, [Store.Commit] also begins and commits the transaction, and a relay (package
// outbox) hands committed messages over, to the coordinator or straight to RabbitMQ. Several relays work side by side:
// each claims rows for a time, and when a relay dies others claim its rows after this time.
//
// Exchange, routing key, event and times of a message have columns of their own. [Config.Shards] divides messages into
// shards, for relays that divide the work (package outbox/shards). Programs with a relay of their own use
// [Store.Pending], [Store.MarkSent], [Store.MarkFailed], [Store.IncrementAttempts] and [Store.CountsByStatus].
//
// # Requirements on the database
//
// All statements go to the primary. The connection's transactions are READ COMMITTED or stricter; a serialization
// failure is UNKNOWN, never a verdict. SQLite has one writer at a time: open SQLite with a busy timeout (of
// modernc.org/sqlite: file:orders.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)). On SQLite a last question
// is UNAVAILABLE while any transaction writes for longer than LockTimeout, which costs the message no attempt. After
// DeleteBusiness a marker is kept for Retention and then removed, by a later DeleteBusiness or [Store.Purge]; a
// committed marker without DeleteBusiness is never removed.
package sql
