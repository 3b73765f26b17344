// Package shards lets several relays divide the shards of a producer's local message table, and take over the shards
// of a relay that died.
//
//	markers, err := sqlmarker.New(sqlmarker.Config{Shards: 16, ...})
//	leases, err := shards.NewLeases(shards.LeasesConfig{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
//	err = leases.Migrate(ctx)
//	held, err := shards.New(shards.Config{Tables: shards.Of(markers), Leases: leases})
//	relay, err := outbox.New(outbox.Config{Table: held, Sender: sender})
//	relay.Run(ctx)                                   // runs held too
//
// A shard may also be a table or a database of its own: give a store for each, whose ShardID is its place in Tables.
//
// Each relay has a row in the table of leases, and renews the row. The shards are divided evenly among the relays whose
// rows are fresh. A relay that has more than its share gives shards back; a relay that has less takes shards that are
// free, or whose lease has ended. A relay that stops gives all back at once.
//
// A lease divides work and keeps the claims of relays apart. The promise that no two relays hold a message at the same
// time does not depend on leases: each message has a lock and a token in its own row. So a message of a dead relay
// waits until both its shard's lease and its own lock have ended.
//
// Without Leases the relay has all tables that it is given.
package shards
