// Package systems holds the ways to send a message with a committed order that test/compare measures beside each other.
//
// Each system runs with the settings that its own documentation, or its own benchmark, recommends for throughput. The
// settings stand beside the system, with their reason, and in docs/evidence/comparison.md.
package systems

import (
	"context"
	"fmt"
	"strconv"
)

// Order is the business of every system: one row, and one message.
type Order struct {
	// Number identifies order and message.
	Number uint64
	// RoutingKey names the queue, through RabbitMQ's default exchange.
	RoutingKey string
	// Body is the message's body, JSON.
	Body []byte
}

// ID is the message's id.
func (o Order) ID() string { return strconv.FormatUint(o.Number, 10) }

// InsertOrder is the business of every system.
const InsertOrder = `INSERT INTO orders (number, customer, cents) VALUES ($1, $2, $3)`

// business are the arguments of InsertOrder.
func (o Order) business() []any { return []any{int64(o.Number), "cus_" + o.ID(), o.Number % 10_000} }

// OrdersTable is the table of the business.
const OrdersTable = `CREATE TABLE IF NOT EXISTS orders (
	number BIGINT PRIMARY KEY, customer TEXT NOT NULL, cents BIGINT NOT NULL,
	placed_at TIMESTAMPTZ NOT NULL DEFAULT now())`

// Connections is the size of the pool of every system.
const Connections = 32

// Producer is the producer's name where a system has one.
const Producer = "compare"

// Config says where the servers are.
type Config struct {
	// Database is the DSN of PostgreSQL, Broker the URL of RabbitMQ, Coordinator the address of msghandler's API.
	Database, Broker, Coordinator string
}

// System commits orders with their messages. Its methods are safe for concurrent use.
type System interface {
	// Commit returns when the order and its message are committed. The message is published later.
	Commit(ctx context.Context, o Order) error
	// Close ends the work in the background.
	Close()
}

// Kind is a system that can be opened.
type Kind struct {
	// Name is the name on the command line, Title the one in tables.
	Name, Title string
	// Coordinator says that msghandler publishes; otherwise the service does.
	Coordinator bool
	// Outbox is the coordinator's configuration of the outbox in plain SQL, as MSGHANDLER_OUTBOX_SHOP_* variables without
	// that prefix; nil where the coordinator reads none.
	Outbox []string
	// Setup makes the tables. Open starts the system on these tables.
	Setup func(ctx context.Context, c Config) error
	Open  func(ctx context.Context, c Config) (System, error)
	// Waiting is a query for the number of messages in the database that wait to be published.
	Waiting string
	// Fate is a query for what the database says about a message that the broker had no queue for; $1 is its id.
	Fate string
}

// InRedis says that the messages wait in Redis, and not in PostgreSQL.
func (k Kind) InRedis() bool { return k.Coordinator && k.Outbox == nil }

// Store is where the messages wait.
func (k Kind) Store() string {
	if k.InRedis() {
		return "Redis"
	}
	return "PostgreSQL"
}

// All are the systems, in the order of the tables.
var All = []Kind{half, plain, notified, relay, jobs, watermillEight, watermillOne}

// Named finds a system.
func Named(name string) (Kind, error) {
	for _, kind := range All {
		if kind.Name == name {
			return kind, nil
		}
	}
	return Kind{}, fmt.Errorf("there is no system %q", name)
}
