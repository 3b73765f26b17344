// Package sql keeps business markers in the producer's own database, in the transaction of the business: what commits
// has its marker, and what does not has none.
//
//	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
//	err = markers.Migrate(ctx)                       // creates or upgrades the table
//	p, err := producer.New(producer.Config{Name: "orders", Markers: markers, ...})
//	err = markers.Send(ctx, p, message, func(ctx context.Context, tx *sql.Tx) error {
//		return pay(ctx, tx, order)                   // everything through tx
//	})
//
// It speaks to PostgreSQL, MySQL, MariaDB and SQLite through database/sql and imports no driver: that is the caller's.
//
// # The barrier
//
// The marker is the FIRST thing that the transaction writes. When the coordinator asks about a message for the last time
// and there is no marker, the store tries to write one under the same key that says "rolled back": a tombstone. If a
// transaction with the marker is running, the database makes the tombstone wait for it: it commits, and the answer is
// COMMITTED; or it fails, and the tombstone stands; or it takes longer than LockTimeout, and the answer is UNKNOWN, on
// SQLite UNAVAILABLE. Once
// the tombstone stands, a transaction that comes late fails at its marker with [producer.ErrRolledBack], before it has
// done anything. So COMMITTED and ROLLED_BACK are both true for ever, and absence alone is never a verdict.
//
// A transaction without its marker would have none of that. After every business the SDK looks for the marker, and where
// there is none the call ends with [producer.ErrUnmarked].
//
// The same barrier tells what became of a commit whose answer was lost: Send returns nil if it is there, and is certain
// that it is not when the tombstone stands. Nothing is ever rolled back by hand after a commit was tried.
//
// # A database that is busy
//
// Until the marker is written the business has not begun. [Store.Send], [Store.InTx] and [Store.Commit] begin anew after a
// lock, a deadlock, a serialization failure or a lost connection, for [Config.BeginTimeout] and as long as the context
// lasts. Then the error wraps [producer.ErrSendAgain]: the half message stays PENDING, and the same id may be sent again
// until the coordinator's last question. An error of COMMIT is never tried again.
//
// # Transactions of one's own making
//
// Who manages the transaction calls [Store.Mark] as its first statement, between [producer.Producer.SendHalf] and
// [producer.Producer.Submit]:
//
//	state, err := p.SendHalf(ctx, message)           // go on only with StatePending and no error
//	tx, err := db.BeginTx(ctx, nil)
//	err = markers.Mark(ctx, tx, message.ID)          // an error: tx.Rollback(); ErrSendAgain: the same id once more
//	...
//	if err = tx.Commit(); err != nil {
//		err = markers.Settle(ctx, message.ID, err)   // nil: it is committed after all
//	}
//	_, err = p.Submit(ctx, message.ID)
//
// # The local message table
//
// The marker's row may hold the message itself. Then the business needs no coordinator: [Store.Enqueue] writes marker
// and message into the transaction, [Store.Commit] does that and all around it, and a relay (package outbox) hands over
// what is committed, to the coordinator or straight to RabbitMQ. Several relays work side by side: each claims rows for a
// time, and what a dead one held goes on when that time is over.
//
// # What it asks of the database
//
// All of it is on the primary. The connection's transactions are READ COMMITTED or stricter; a serialization failure is
// UNKNOWN, never a verdict. SQLite has one writer at a time: open it with a busy timeout (of modernc.org/sqlite:
// file:orders.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)), and a last question is UNAVAILABLE while any
// transaction writes for longer than LockTimeout: that says nothing of the message and costs no attempt. Markers that the coordinator let go are kept for Retention and then
// taken by [Store.Purge]; a committed marker that it did not let go is kept for as long as it takes.
package sql
