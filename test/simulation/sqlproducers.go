package simulation

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/faults"
	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

// textOf is a value of the model database that is bytes or text.
func textOf(v any) string { return fmt.Sprintf("%v", v) }

// open implements business.
func (d *sqlData) open(run *serviceRun) (marker.Store, error) {
	run.sql = d.data.openPool()
	var err error
	run.sql.store, err = d.store(run.sql.db, slog.New(d.data.world.log.handler(run.host.name)))
	return run.sql.store, err
}

// serve implements business: the local message table has a relay in each process.
func (d *sqlData) serve(run *serviceRun) error {
	if !d.table {
		return nil
	}
	relay, err := outbox.New(outbox.Config{
		Table: run.sql.store, Sender: outbox.ToCoordinator(run.sdk), Owner: run.host.name,
		Batch:    1 + d.data.world.Choices.Intn("batch of "+d.producer, 20),
		Interval: d.data.world.drawn.poll,
		Logger:   slog.New(d.data.world.log.handler(run.host.name)),
	})
	if err == nil {
		run.sql.relaying.Go(func() { relay.Run(run.life) })
	}
	return err
}

// sqlWay is how the transaction of a business goes, before its COMMIT and after it.
type sqlWay struct {
	percent int
	// before is called when the order is written.
	before func(ctx context.Context, s *service, id string) error
	// dies: the process ends after the COMMIT.
	dies bool
}

// sqlWays are the ways of a transaction.
var sqlWays = []sqlWay{
	{percent: 50},
	{percent: 15, dies: true},
	{percent: 10, before: func(context.Context, *service, string) error { return errRefused }},
	{percent: 10, before: func(ctx context.Context, s *service, _ string) error {
		s.restart()
		return ctx.Err()
	}},
	{percent: 15, before: func(ctx context.Context, s *service, id string) error {
		return sleep(ctx, s.world.pace.long(s.world.Choices, s.called+"/"+id+" lingers", time.Second, 2*time.Minute))
	}},
}

func (s *service) sqlWay(id string) sqlWay {
	drawn := s.world.Choices.Intn(s.place+"/"+id+" way", 100)
	for _, way := range sqlWays {
		if drawn -= way.percent; drawn < 0 {
			return way
		}
	}
	return sqlWay{}
}

// send implements business. An id that may be sent again is sent again, by the process that lives by then.
func (d *sqlData) send(s *service, run *serviceRun, m producer.Message) (err error) {
	way := s.sqlWay(m.ID)
	for range 3 {
		if err = d.sendOnce(s, run, m, way); !errors.Is(err, producer.ErrSendAgain) {
			return err
		}
		_ = sleep(d.data.world.life, within(d.data.world.Choices, s.called+"/"+m.ID+" again", 0, 10*time.Second))
		run = s.current()
	}
	return err
}

func (d *sqlData) sendOnce(s *service, run *serviceRun, m producer.Message, way sqlWay) error {
	business := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO orders (producer, id) VALUES ($1, $2)", d.producer, m.ID)
		if err == nil && way.before != nil {
			err = way.before(ctx, s, m.ID)
		}
		return err
	}
	if d.table {
		err := run.sql.store.Commit(run.life, m, business)
		if err == nil && way.dies {
			s.restart()
		}
		return err
	}
	inTx := run.sql.store.InTx(m, business)
	return run.sdk.Send(run.life, m, func(ctx context.Context) error {
		d.data.world.Ledger.Accepted(s.called + "/" + m.ID)
		defer d.data.world.databases.hold(s.called + "/" + m.ID)()
		err := inTx(ctx)
		if err == nil && way.dies {
			s.restart()
		}
		return err
	})
}

// inserting is a producer without SDK: its messages are rows of the plain outbox, which the coordinators relay.
type inserting struct {
	data *sqlDatabase
	mu   sync.Mutex
	run  *sqlProcess
}

const insertingName = "inserting"

// startInserting makes the producer, and its database. The coordinators have been told of it by settings.
func (w *World) startInserting() {
	w.producers = append(w.producers, &inserting{data: w.outbox, run: w.outbox.openPool()})
}

// newOutbox makes the database that the coordinators relay.
func (w *World) newOutbox() (*sqlDatabase, error) {
	d, err := w.newSQLDatabase("database of "+insertingName, statement(orderTable),
		func(ctx context.Context, db *sql.DB) error {
			o, err := sqlmarker.NewOutbox(sqlmarker.OutboxConfig{
				DB: db, Dialect: sqlmarker.PostgreSQL, Producer: insertingName,
			})
			if err != nil {
				return err
			}
			return o.Migrate(ctx)
		})
	if err == nil {
		d.unsent = "SELECT id FROM " + sqlmarker.DefaultOutboxTable + " WHERE state < 3"
		d.server.Watch(func(table string, row modeldb.Row) {
			if table == "orders" {
				key := insertingName + "/" + textOf(row["id"])
				w.Ledger.Accepted(key)
				w.Ledger.Decide(key, faults.Committed)
			}
		})
	}
	return d, err
}

func (p *inserting) name() string { return insertingName }

func (p *inserting) markers() []string { return nil }

func (p *inserting) current() *sqlProcess {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

// restart implements producing.
func (p *inserting) restart() {
	next := p.data.openPool()
	p.mu.Lock()
	old := p.run
	p.run = next
	p.mu.Unlock()
	old.kill()
	old.close()
}

func (p *inserting) close() { p.current().close() }

// act implements producing: one transaction with an order and its message.
func (p *inserting) act(id string) {
	w, key := p.data.world, insertingName+"/"+id
	body := bytes.Repeat([]byte(id+" "), 1+w.Choices.Intn(key+" size", 200))
	headers := map[string]string{"order": id}
	w.Ledger.Sending(key, faults.NewContent(exchange, insertingName, headers, body))
	err := p.insert(id, headers, body, percent(w.Choices, key+" refused", 15))
	w.Ledger.Noted(key, "producer", fmt.Sprint("the transaction returns: ", err))
}

func (p *inserting) insert(id string, headers map[string]string, body []byte, refused bool) error {
	ctx, cancel := context.WithTimeout(p.data.world.life, time.Minute)
	defer cancel()
	tx, err := p.current().db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a COMMIT it does nothing
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (producer, id) VALUES ($1, $2)", insertingName, id); err != nil {
		return err
	}
	written, err := json.Marshal(headers)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "INSERT INTO "+sqlmarker.DefaultOutboxTable+
		" (id, exchange, routing_key, body_bytes, headers) VALUES ($1, $2, $3, $4, $5)",
		id, exchange, insertingName, body, string(written))
	switch {
	case err != nil:
		return err
	case refused:
		return errRefused
	}
	return tx.Commit()
}
