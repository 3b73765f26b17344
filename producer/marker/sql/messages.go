package sql

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/msghandler/msghandler/internal/ground/event"
	"github.com/msghandler/msghandler/producer"
)

// State is the state of a message in its marker's row.
type State uint8

// The states of a message in the local message table.
const (
	// StateNone: the row is a marker alone.
	StateNone State = 0
	// StateWaiting: to be sent by a relay.
	StateWaiting State = 1
	// StateHanded: the coordinator has the message; handed over again until DeleteBusiness.
	StateHanded State = 2
	// StateSent: nothing is to be done any more.
	StateSent State = 3
	// StateFailed: refused up to the limit; kept until Retry.
	StateFailed State = 4
)

// Enqueue leaves the marker of a message in a transaction, with the message in its row, before anything else that the
// transaction writes, like Mark. A relay sends the message once the transaction has committed. Call Enqueued after the
// commit, or the relay sends at its next turn.
func (s *Store) Enqueue(ctx context.Context, tx *sql.Tx, m producer.Message) error {
	return s.keep(ctx, tx, m, StateWaiting, 0)
}

// Commit runs the business in a transaction that enqueues the message first, and commits, without a coordinator.
// Commit returns nil when the business has committed; the message is then certain to be sent. Otherwise the error
// wraps [producer.ErrNotCommitted], or, if the database gives no answer, [producer.ErrOutcomeUnknown]: the message is
// then sent if, and only if, the transaction did commit. The error wraps [producer.ErrAlreadyCommitted] when the id
// has committed before, and [producer.ErrSendAgain] when the transaction could not begin or was aborted for a
// transient reason.
func (s *Store) Commit(ctx context.Context, m producer.Message, run Business) error {
	enqueue := func(ctx context.Context, s *Store, tx *sql.Tx) error { return s.Enqueue(ctx, tx, m) }
	err := s.transact(ctx, m.ID, enqueue, run)
	if err != nil {
		return fmt.Errorf("business of %s: %w", m.ID, err)
	}
	s.Enqueued(ctx, m.ID)
	return nil
}

// Enqueued logs that messages of Enqueue have committed, and lets a relay of this process look at the table at once.
// Commit calls Enqueued by itself.
func (s *Store) Enqueued(ctx context.Context, ids ...string) {
	for _, id := range ids {
		s.config.Logger.DebugContext(ctx, "message enqueued", "message_id", s.config.Producer+"/"+id)
	}
	s.Wake()
}

// Wake lets a relay of this process look at the table at once.
func (s *Store) Wake() {
	select {
	case s.queued <- struct{}{}:
	default: // Queued holds a value already
	}
}

// Queued gets a value when messages may have been committed since the last read. The channel is for one relay.
func (s *Store) Queued() <-chan struct{} { return s.queued }

// wire is a message as the column message keeps it. The body has a column of its own. Exchange and routing key stand
// here too, because a column of a name may not hold it.
type wire struct {
	Broker      string            `json:"broker,omitempty"`
	Exchange    string            `json:"exchange"`
	RoutingKey  string            `json:"routing_key"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	OrderingKey string            `json:"ordering_key,omitempty"`
	DelayMS     int64             `json:"delay_ms,omitempty"`
}

// unkeepable says why the table cannot hold a message unchanged: JSON would replace bytes that are not UTF-8.
func unkeepable(m producer.Message) error {
	texts := []string{m.Broker, m.Exchange, m.RoutingKey, m.ContentType, m.OrderingKey}
	for name, value := range m.Headers {
		texts = append(texts, name, value)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) {
			return fmt.Errorf("enqueue %s: %q is not valid UTF-8; only a body may be anything", m.ID, text)
		}
	}
	return nil
}

func (s *Store) keep(ctx context.Context, tx *sql.Tx, m producer.Message, state State, due time.Duration) error {
	if err := unkeepable(m); err != nil {
		return err
	}
	text, err := json.Marshal(wire{
		Broker: m.Broker, Exchange: m.Exchange, RoutingKey: m.RoutingKey, ContentType: m.ContentType, Headers: m.Headers,
		OrderingKey: m.OrderingKey, DelayMS: m.Delay.Milliseconds(),
	})
	if err != nil {
		return fmt.Errorf("enqueue %s: %w", m.ID, err)
	}
	body := m.Body
	if body == nil {
		body = []byte{} // a row without a body is a row without a message
	}
	e := s.config.Describe(m)
	claims := 0
	if state == StateHanded {
		claims = 1 // Send hands the message over itself
	}
	return s.mark(ctx, tx, m.ID,
		`INSERT INTO {table} (producer, id, verdict, state, due_at, message, body, claims, shard_id,
		exchange_name, routing_key, event_type, aggregate_type, aggregate_id, created_at, updated_at)
		SELECT ?, ?, ?, ?, {now} + ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, {now}`,
		append([]any{int64(state), due.Milliseconds(), string(text), body, claims, s.shardOf(m, e)}, columns(m, e)...)...)
}

// columns are the values of exchange_name, routing_key, event_type, aggregate_type and aggregate_id.
func columns(m producer.Message, e Event) []any {
	return []any{
		nameColumn(m.Exchange), nameColumn(m.RoutingKey),
		event.Column(e.Type), event.Column(e.AggregateType), event.Column(e.AggregateID),
	}
}

// nameColumn is event.Column, but keeps an empty name: the empty exchange is RabbitMQ's default exchange. A name that
// the column cannot hold stands in the column message alone.
func nameColumn(name string) any {
	if name == "" {
		return ""
	}
	return event.Column(name)
}

// form is how a table keeps messages.
type form struct {
	// key is an id as a parameter.
	key func(id string) any
	// columns are the columns of the content of a message, in the order of the fields of content.
	columns string
	content func() content
	// bytes is the length of the content.
	bytes string
	// ofBroker is the condition of a claim for a broker; empty where the table has no column for it.
	ofBroker string
}

// content is the content of a row with a message.
type content interface {
	// fields are the destinations of Scan.
	fields() []any
	// unpack restores the message of the row. The error says why the row is no message.
	unpack(id string) (producer.Message, error)
}

// ofMarkers is the form of the SDK's own table.
var ofMarkers = form{
	key:     func(id string) any { return []byte(id) },
	columns: "message, body, exchange_name, routing_key",
	content: func() content { return &row{} },
	bytes:   "COALESCE({octets}(body), 0) + COALESCE({octets}(message), 0)",
}

// row is the content of a message that keep wrote.
type row struct {
	text                 sql.NullString
	body                 []byte
	exchange, routingKey sql.NullString
}

func (r *row) fields() []any { return []any{&r.text, &r.body, &r.exchange, &r.routingKey} }

// unpack implements content. The columns of exchange and routing key win over the JSON, so that an operator can correct
// them.
func (r *row) unpack(id string) (producer.Message, error) {
	var w wire
	if err := json.Unmarshal([]byte(r.text.String), &w); err != nil {
		return producer.Message{ID: id}, fmt.Errorf("the message of %s cannot be read: %w", id, err)
	}
	m := producer.Message{
		ID: id, Broker: w.Broker, Exchange: w.Exchange, RoutingKey: w.RoutingKey, ContentType: w.ContentType,
		Headers: w.Headers, Body: r.body, OrderingKey: w.OrderingKey, Delay: time.Duration(w.DelayMS) * time.Millisecond,
	}
	if r.exchange.Valid {
		m.Exchange = r.exchange.String
	}
	if r.routingKey.Valid {
		m.RoutingKey = r.routingKey.String
	}
	return m, nil
}
