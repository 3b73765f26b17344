package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// unreachable is a database to which no connection can be opened.
type unreachable struct{}

func (unreachable) Connect(context.Context) (driver.Conn, error) {
	return nil, fmt.Errorf("dial tcp 127.0.0.1:5432: %w", syscall.ECONNREFUSED)
}
func (unreachable) Driver() driver.Driver { return nil }

func TestDatabaseThatIsAwayIsTransient(t *testing.T) {
	t.Parallel()
	db := sql.OpenDB(unreachable{})
	defer func() { _ = db.Close() }()
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
	if err != nil {
		t.Fatal(err)
	}
	err = inbox.Handler(nil).Handle(t.Context(), order("1"))
	if !errors.Is(err, consumer.ErrTransient) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

// conflict is an error of PostgreSQL.
type conflict struct{ state string }

func (c conflict) Error() string    { return "could not serialize access" }
func (c conflict) SQLState() string { return c.state }

func TestTroubleOfDatabaseIsNoFault(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		inbox := d.inbox(t, db, nil)
		for name, row := range map[string]struct {
			fails     error
			times     int
			transient bool
			effects   int
		}{
			"a lost connection":                       {driver.ErrBadConn, 1, true, 1},
			"a fault of its own":                      {errors.New("no such account"), 1, false, 1},
			"a message cut short":                     {fmt.Errorf("read the order: %w", io.ErrUnexpectedEOF), 1, false, 1},
			"another service that is away":            {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 1, false, 1},
			"a transaction that the effect has ended": {sql.ErrTxDone, 1, false, 1},
		} {
			effects := 0
			err := inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
				if effects++; effects <= row.times {
					return row.fails
				}
				return d.pay(ctx, tx, m)
			}).Handle(t.Context(), order(name))
			if !errors.Is(err, row.fails) || errors.Is(err, consumer.ErrTransient) != row.transient ||
				effects != row.effects {
				t.Errorf("%s: %d effects, %v", name, effects, err)
			}
		}
	})
}

// A conflict with other transactions is repeated at once, and has one effect. A statement that always times out ends.
func TestConflictsAreRepeatedAFewTimes(t *testing.T) {
	t.Parallel()
	server := servers.PostgreSQL(t)
	d := database{sqlinbox.PostgreSQL, server.Driver, server.DSN}
	db := d.open(t)
	inbox := d.inbox(t, db, nil)
	for _, conflicts := range []int{2, 100} {
		effects := 0
		err := inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			if effects++; effects <= conflicts {
				return conflict{"40001"}
			}
			return d.pay(ctx, tx, m)
		}).Handle(t.Context(), order(fmt.Sprint(conflicts)))
		if again := min(conflicts, 3) + 1; effects != again || (err == nil) != (conflicts == 2) ||
			errors.Is(err, consumer.ErrTransient) {
			t.Errorf("%d conflicts: %d effects, %v", conflicts, effects, err)
		}
	}
	if n := payments(t, db); n != 1 {
		t.Errorf("%d payments, want 1", n)
	}
}
