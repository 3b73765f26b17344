// Package modeldb is a database in memory for simulated time: what matters of PostgreSQL for the SDK's markers, tables
// and inboxes, behind database/sql. Transactions are READ COMMITTED: a statement reads what was committed when the
// statement began. A write locks its rows until the end of the transaction, and waits for the transaction that holds
// them. The INSERT of a key waits for a transaction that has written the same key. Statements of a failed transaction
// are refused.
//
// The package interprets the statements that the SDK sends, and their DDL: a condition that a change drops from a
// statement is missing here too, which a table of known texts would hide. The dialect is that of PostgreSQL, which
// needs the fewest statements: MySQL and SQLite set savepoints and session variables around each transaction. A
// statement beyond this subset is an error that quotes it, and Server.Unknown lists it for the test.
//
// The caller's Faults decide about each call: delays, a connection that ends before or after the statement, a COMMIT
// that comes late, errors of the server. Servers stop, follow each other with a lag, and take each other's place.
// The same tests hold for this package and for the real PostgreSQL.
//
// In a synctest bubble a statement must get the context of its transaction, or one that ends earlier: at the end of the
// transaction's context database/sql waits on a mutex for the statement, which stops simulated time.
//
// SQLite in the bubble cannot take its place: it has one writer, so no transaction holds a row that another one waits
// for; its waits sleep by the machine's clock; and no COMMIT comes late, or to a replica that lags.
//
// Not modelled: plans and their speed, levels above READ COMMITTED, savepoints, locks of tables, notifications, and
// transactions around DDL. Waiting transactions get a row in the order in which they came.
package modeldb
