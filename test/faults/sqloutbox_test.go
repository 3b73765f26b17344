package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/servers"
)

// Faults of coordinators that relay an outbox in plain SQL.
var sqlOutboxRows = []row{{
	name: "F03_outbox", copies: true, lasting: true, world: options{before: withSQLOutbox},
	users: func(w *world) []user { return []user{w.inserter} }, fault: killRelaying, heal: waitForLocks,
}}

// inserter is a producer that knows SQL alone: a row in the transaction of its business, and no call.
type inserter struct {
	witness
	db *sql.DB
}

// withSQLOutbox makes the table, and has the coordinators relay it.
func withSQLOutbox(w *world) {
	w.t.Helper()
	d := newPostgreSQL(w.t)
	settings := config.DefaultOutbox()
	settings.DSN, settings.Producer = d.DSN, "inserter"
	if err := sqloutbox.Migrate(w.t.Context(), "shop", settings); err != nil {
		w.t.Fatal(err)
	}
	w.options.settings = append(w.options.settings, "MSGHANDLER_OUTBOX_SHOP_DSN="+d.DSN,
		"MSGHANDLER_OUTBOX_SHOP_PRODUCER=inserter", "MSGHANDLER_OUTBOX_SHOP_POLL=500ms")
	w.inserter = &inserter{
		witness{name: "inserter", ledger: w.ledger, once: true, to: w.destination()}, d.opened(w.t, orderTable),
	}
}

func (p *inserter) act(ctx context.Context, id string, random *rand.Rand) {
	p.commit(ctx, p.draw(id, random))
}

// commit runs the transactions of businesses as one. Those that refuse or break off roll it back.
func (p *inserter) commit(ctx context.Context, all ...deed) {
	fate := Committed
	tx, err := p.db.BeginTx(ctx, nil)
	for _, d := range all {
		p.sending(d)
		p.ledger.Accepted(d.key)
		if d.refuses() || d.breaksOff() {
			fate = RolledBack
		}
		if err == nil {
			err = insertMessage(ctx, tx, p.name, d)
		}
	}
	if err != nil {
		p.surprised("a transaction: %v", err)
		return
	}
	for _, d := range all {
		p.ledger.Decide(d.key, fate) // before the commit, after which a copy may come at any time
	}
	end := tx.Commit
	if fate == RolledBack {
		end = tx.Rollback
	}
	if err := end(); err != nil {
		p.surprised("the end of a transaction: %v", err)
	}
}

func insertMessage(ctx context.Context, tx *sql.Tx, routingKey string, d deed) error {
	headers, err := json.Marshal(d.headers)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO msghandler_outbox (id, exchange, routing_key, headers, body_bytes)
		VALUES ($1, $2, $3, $4, $5)`, d.id, exchange, routingKey, string(headers), d.body)
	return err
}

// marked implements user: there are no markers.
func (p *inserter) marked(context.Context) ([]string, error) { return nil, nil }

// killRelaying kills each coordinator while it holds rows.
func killRelaying(_ context.Context, w *world, random *rand.Rand) {
	for n, c := range w.coordinators {
		var burst []deed
		for i := range 1000 {
			d := w.inserter.draw(fmt.Sprintf("burst-%d-%d", n, i), random)
			d.way = 0
			burst = append(burst, d)
		}
		w.inserter.commit(w.t.Context(), burst...)
		for w.inserter.count(w, fmt.Sprintf("owner LIKE '%%-%d-%%'", c.Cmd.Process.Pid)) == 0 {
			if w.inserter.count(w, "state = 1") == 0 {
				w.t.Error("the rows were relayed without the coordinator: the row proves nothing")
				break
			}
		}
		w.ledger.Fault("SIGKILL to " + c.grpc)
		_ = w.end(c, syscall.SIGKILL)
		w.t.Logf("%d rows were held", w.inserter.count(w, "owner IS NOT NULL"))
		w.start(c)
		c.Ready(c.http)
	}
}

// waitForLocks waits until every row is sent: those that a killed coordinator held, after the end of its locks.
func waitForLocks(t *testing.T, w *world, _ *load) {
	t.Helper()
	servers.Eventually(t, patience, "every row is sent", func() bool { return w.inserter.count(w, "state <> 3") == 0 })
}

// count counts the rows that meet a condition.
func (p *inserter) count(w *world, where string) (n int) {
	w.t.Helper()
	err := p.db.QueryRowContext(w.t.Context(), "SELECT COUNT(*) FROM msghandler_outbox WHERE "+where).Scan(&n)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}
