package faults

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// shop is a user of the SDK whose markers are in its own database, in the transactions of its business. That database
// is the truth: a business has committed if its order is there.
type shop struct {
	*service
	database database
	db       *sql.DB
	store    *sqlmarker.Store
	// repeated counts the messages that were forgotten and sent again.
	repeated int
}

// lockTimeout is below confirm.timeout, as world.start sets it.
const lockTimeout = 300 * time.Millisecond

// newShop has no Resolve: the markers say everything.
func newShop(w *world, name string, d database, change ...func(*sqlmarker.Config)) *shop {
	w.t.Helper()
	s := &shop{database: d, db: d.opened(w.t, orderTable)}
	config := sqlmarker.Config{DB: s.db, Dialect: d.Dialect, Producer: name, LockTimeout: lockTimeout}
	for _, c := range change {
		c(&config)
	}
	store, err := sqlmarker.New(config)
	w.must(err)
	w.must(store.Migrate(w.t.Context()))
	s.store, s.service = store, makeService(w, name, store)
	s.send = s.sell
	s.serve(w, nil)
	return s
}

// sell sends a message with its order. A shop that forgets the Submit has committed nevertheless. Where there is one
// writer, a slow business is slow before its transaction.
func (s *shop) sell(ctx context.Context, m producer.Message, d deed) error {
	inTx := s.store.InTx(m, s.order(d))
	var err error
	switch {
	case d.silent():
		err = s.sdk.Send(ctx, m, func(ctx context.Context) error {
			if err := inTx(ctx); err != nil {
				return err
			}
			return producer.ErrOutcomeUnknown
		})
	case d.lingers() && s.database.oneWriter():
		err = s.sdk.Send(ctx, m, func(ctx context.Context) error {
			s.ledger.Accepted(d.key)
			wait(d.slow)
			return inTx(ctx)
		})
	default:
		err = s.store.Send(ctx, s.sdk, m, s.order(d))
	}
	if d.lingers() && errors.Is(err, producer.ErrRolledBack) {
		return errors.Join(errRefused, err) // the tombstone was there first
	}
	return err
}

// order is the business. The first row of its transaction is the marker.
func (s *shop) order(d deed) sqlmarker.Business {
	return func(ctx context.Context, tx *sql.Tx) error {
		s.ledger.Accepted(d.key)
		if _, err := tx.ExecContext(ctx, s.database.says(insertOrder), d.id); err != nil {
			return err
		}
		switch {
		case d.refuses():
			return errRefused
		case d.breaksOff():
			return producer.ErrOutcomeUnknown
		case d.lingers() && !s.database.oneWriter():
			wait(d.slow)
		}
		return nil
	}
}

// act does one business, and reads the outcome from the database.
func (s *shop) act(ctx context.Context, id string, random *rand.Rand) {
	s.service.act(ctx, id, random)
	there, err := counts(ctx, s.db, s.database.says(`SELECT id, 1 FROM orders WHERE id = ?`), id)
	if err != nil {
		s.surprised("%s: its order cannot be looked up: %v", s.key(id), err)
	}
	if len(there) > 0 {
		s.ledger.Decide(s.key(id), Committed)
	}
}

// repeat is recognised by the marker's row, which stays after its release.
func (s *shop) repeat(t *testing.T, id string, e Entry) (unmarked bool) {
	t.Helper()
	s.repeated++
	return s.service.repeat(t, id, e)
}

// tell brings the rows of the database into the ledger, when no transaction is running any more.
func (s *shop) tell(ctx context.Context) error {
	there, err := orders(ctx, s.db)
	if err != nil {
		return err
	}
	for _, id := range s.ledger.IDs(s.name) {
		fate := RolledBack
		if there[id] > 0 {
			fate = Committed
		}
		if told := s.ledger.Decide(s.key(id), fate); told != fate {
			s.surprised("%s: its database says that it is %v, and said before that it was %v", s.key(id), fate, told)
		}
	}
	return nil
}

// marked are the rows that were not released. A tombstone is never released.
func (s *shop) marked(ctx context.Context) ([]string, error) { return markedTable(ctx, s.db, s.name) }

// markedTable lists the markers of a producer's database that are not released.
func markedTable(ctx context.Context, db *sql.DB, producer string) (keys []string, err error) {
	found, err := counts(ctx, db, `SELECT id, 1 FROM `+sqlmarker.DefaultTable+` WHERE cleaned_at IS NULL`)
	for _, id := range slices.Sorted(maps.Keys(found)) {
		keys = append(keys, producer+"/"+id)
	}
	return keys, err
}
