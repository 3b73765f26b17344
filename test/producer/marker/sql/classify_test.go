package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// unreachable is a database whose driver gives an error that the SDK does not know.
type unreachable struct{}

func (unreachable) Connect(context.Context) (driver.Conn, error) {
	return nil, errors.New("out of sockets")
}

func (unreachable) Driver() driver.Driver { return nil }

func TestUnknownErrorBeforeMarkerKeepsID(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(unreachable{})
	t.Cleanup(func() { _ = db.Close() })
	for _, dialect := range []sqlmarker.Dialect{sqlmarker.PostgreSQL, sqlmarker.MySQL, sqlmarker.SQLite} {
		s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: dialect, Producer: "orders"})
		if err != nil {
			t.Fatal(err)
		}
		err = s.InTx(message("1001"), nothing)(t.Context())
		if !errors.Is(err, producer.ErrSendAgain) || !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("%v: %v", dialect, err)
		}
	}
}

// closedError is what pgx says of a connection that was closed before the statement.
type closedError struct{}

func (closedError) Error() string { return "conn closed" }

func (closedError) SafeToRetry() bool { return true }

func TestErrorsOfTheBusinessAreClassified(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		p, a := sender(t, s)
		ended, cancel := context.WithCancel(t.Context())
		defer cancel()
		for name, row := range map[string]struct {
			ctx   context.Context
			err   error
			again bool
		}{
			"closed":    {t.Context(), closedError{}, true},
			"done":      {t.Context(), sql.ErrConnDone, true},
			"ended":     {ended, context.Canceled, true},
			"decided":   {t.Context(), errors.New("sold out"), false},
			"permanent": {t.Context(), producer.Permanent(closedError{}), false},
			"own-limit": {t.Context(), context.DeadlineExceeded, false},
		} {
			err := s.Send(row.ctx, p, message(name), func(context.Context, *sql.Tx) error {
				if row.ctx == ended {
					cancel()
				}
				return row.err
			})
			if errors.Is(err, producer.ErrSendAgain) != row.again || !errors.Is(err, producer.ErrNotCommitted) ||
				!errors.Is(err, row.err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if len(a.rolledBack) != 3 {
			t.Errorf("rolled back %q", a.rolledBack)
		}
	})
}
