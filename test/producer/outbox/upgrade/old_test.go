package upgrade_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/producer/outbox/databases"
)

// old is the local message table as the version before knew it: its DDL and its statements, word for word, with a
// table for one producer. It implements outbox.Table.
type old struct {
	db      *sql.DB
	dialect sqlmarker.Dialect
	queued  chan struct{}
}

// createOld makes the table as Migrate of the version before did.
func createOld(t *testing.T, d databases.Database, db *sql.DB) *old {
	t.Helper()
	text, err := os.ReadFile("testdata/" + d.Dialect.String() + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	databases.Exec(t, db, strings.Split(strings.TrimSuffix(strings.TrimSpace(string(text)), ";"), ";\n")...)
	databases.Exec(t, db, "CREATE TABLE IF NOT EXISTS msghandler_markers_version (version INT NOT NULL)",
		"INSERT INTO msghandler_markers_version (version) VALUES (1)")
	return &old{db: db, dialect: d.Dialect, queued: make(chan struct{}, 1)}
}

// migrate is what Migrate of the version before does with a table that has its one step.
func (o *old) migrate(ctx context.Context) error {
	var version int
	err := o.db.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0) FROM msghandler_markers_version`).Scan(&version)
	if err == nil && version != 1 {
		err = fmt.Errorf("its version %d is not the 1 that this SDK knows", version)
	}
	return err
}

// query completes a statement as sqldb.Table.Query did.
func (o *old) query(text string) string {
	text = strings.NewReplacer("{table}", "msghandler_markers", "{now}", o.dialect.Traits().Now, "{none}", "0",
		"{waiting}", "1", "{handed}", "2", "{sent}", "3", "{failed}", "4").Replace(text)
	for n := 1; o.dialect.Traits().Dollars && strings.Contains(text, "?"); n++ {
		text = strings.Replace(text, "?", fmt.Sprint("$", n), 1)
	}
	return text
}

type wire struct {
	Exchange    string            `json:"exchange"`
	RoutingKey  string            `json:"routing_key"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	DelayMS     int64             `json:"delay_ms,omitempty"`
}

// enqueue commits a message.
func (o *old) enqueue(ctx context.Context, m producer.Message) error {
	text, err := json.Marshal(wire{m.Exchange, m.RoutingKey, m.ContentType, m.Headers, m.Delay.Milliseconds()})
	if err != nil {
		return err
	}
	_, err = o.db.ExecContext(ctx, o.query(`INSERT INTO {table}
		(producer, id, verdict, state, due_at, message, body, created_at) VALUES (?, ?, ?, ?, {now} + ?, ?, ?, {now})`),
		"orders", []byte(m.ID), 2, 1, 0, string(text), m.Body)
	return err
}

// mark commits a marker without a message.
func (o *old) mark(ctx context.Context, id string) error {
	_, err := o.db.ExecContext(ctx,
		o.query(`INSERT INTO {table} (producer, id, verdict, created_at) VALUES (?, ?, ?, {now})`), "orders", []byte(id), 2)
	return err
}

// Claim implements outbox.Table.
func (o *old) Claim(ctx context.Context, owner string, limit int, lock time.Duration) (sqlmarker.Claim, error) {
	claim := sqlmarker.Claim{Token: owner + "/" + rand.Text()[:10]}
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: o.dialect.Traits().Level})
	if err != nil {
		return claim, err
	}
	defer func() { _ = tx.Rollback() }()
	for _, state := range []string{"{waiting}", "{handed}"} {
		ids, err := o.take(ctx, tx, state, holder{claim.Token, lock}, limit-len(claim.Messages))
		if err != nil {
			return claim, err
		}
		for _, id := range ids {
			q, err := o.load(ctx, tx, id)
			if err != nil {
				return claim, err
			}
			claim.Messages = append(claim.Messages, q)
		}
	}
	return claim, tx.Commit()
}

// holder is who takes messages, and for how long.
type holder struct {
	token string
	lock  time.Duration
}

func (o *old) take(
	ctx context.Context, tx *sql.Tx, state string, by holder, limit int,
) (ids []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	due := `SELECT id FROM {table} WHERE producer = ? AND state = ` + state +
		` AND due_at <= {now} ORDER BY due_at LIMIT ?`
	lockRows := `UPDATE {table} SET owner = ?, claims = claims + 1, due_at = {now} + ? WHERE producer = ? AND id IN (`
	if o.dialect.Traits().OneWriter {
		return o.ids(ctx, tx, lockRows+due+`) RETURNING id`, by.token, by.lock.Milliseconds(), "orders", "orders", limit)
	}
	ids, err = o.ids(ctx, tx, due+o.dialect.Traits().SkipLocked, "orders", limit)
	for _, id := range ids {
		_, failed := tx.ExecContext(ctx, o.query(lockRows+`?)`), by.token, by.lock.Milliseconds(), "orders", []byte(id))
		err = errors.Join(err, failed)
	}
	return ids, err
}

func (o *old) ids(ctx context.Context, tx *sql.Tx, query string, args ...any) (ids []string, err error) {
	rows, err := tx.QueryContext(ctx, o.query(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, string(id))
	}
	return ids, rows.Err()
}

func (o *old) load(ctx context.Context, tx *sql.Tx, id string) (q sqlmarker.Queued, err error) {
	var text string
	var body []byte
	var age int64
	err = tx.QueryRowContext(ctx, o.query(`SELECT message, body, claims, attempts, {now} - created_at
		FROM {table} WHERE producer = ? AND id IN (?) ORDER BY created_at`), "orders", []byte(id)).
		Scan(&text, &body, &q.Claims, &q.Attempts, &age)
	if err != nil {
		return q, err
	}
	var w wire
	err = json.Unmarshal([]byte(text), &w)
	q.Message = producer.Message{
		ID: id, Exchange: w.Exchange, RoutingKey: w.RoutingKey, ContentType: w.ContentType, Headers: w.Headers, Body: body,
	}
	return q, err
}

// Release implements outbox.Table, for the outcomes of the test.
func (o *old) Release(ctx context.Context, token string, outcomes []sqlmarker.Outcome) (held int64, err error) {
	for _, outcome := range outcomes {
		set := `owner = NULL, state = ?, due_at = {now} + ?, attempts = attempts + 1, last_error = 'refused'`
		args := []any{int64(outcome.State), outcome.In.Milliseconds()}
		switch outcome.State {
		case sqlmarker.StateSent:
			set, args = `owner = NULL, state = ?, due_at = NULL, cleaned_at = {now}`, args[:1]
		case sqlmarker.StateFailed:
			set, args = `owner = NULL, state = ?, due_at = NULL, attempts = attempts + 1`, args[:1]
		case sqlmarker.StateHanded:
			set = `owner = NULL, state = ?, due_at = {now} + ?`
		}
		result, err := o.db.ExecContext(ctx,
			o.query(`UPDATE {table} SET `+set+` WHERE producer = ? AND owner = ? AND id IN (?)`),
			append(args, "orders", token, []byte(outcome.ID))...)
		if err != nil {
			return held, err
		}
		n, err := result.RowsAffected()
		if held += n; err != nil {
			return held, err
		}
	}
	return held, nil
}

// deleteBusiness is Delete of the version before.
func (o *old) deleteBusiness(ctx context.Context, id string) error {
	_, err := o.db.ExecContext(ctx, o.query(`UPDATE {table} SET cleaned_at = {now}, due_at = NULL, owner = NULL,
			state = CASE WHEN state = {none} THEN {none} ELSE {sent} END
			WHERE producer = ? AND cleaned_at IS NULL AND id IN (?)`), "orders", []byte(id))
	return err
}

func (*old) Purge(context.Context) (int64, error)                     { return 0, nil }
func (*old) Backlog(context.Context) (b sqlmarker.Backlog, err error) { return b, nil }
func (o *old) Queued() <-chan struct{}                                { return o.queued }
