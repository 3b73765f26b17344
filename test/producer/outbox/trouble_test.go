package outbox_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// A long Interval is for a table that is well. A relay that began before its table was there sends soon after.
func TestFailedPassIsRepeatedEarly(t *testing.T) {
	t.Parallel()
	driver, dsn := sqlite(t)
	db := openDB(t, driver, dsn)
	early, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.SQLite, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	to := &sent{}
	warned := make(chan struct{}, 1)
	r := relay(t, early, to, func(c *outbox.Config) {
		c.Interval, c.Logger = time.Hour, slog.New(slog.NewTextHandler(signal(warned), nil))
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	defer running.Wait()
	defer cancel()
	<-warned
	commit(t, db, table(t, db, sqlmarker.SQLite), "order-1") // which wakes another store
	servers.Eventually(t, 30*time.Second, "the message is sent", func() bool { return len(to.of("order-1")) == 1 })
}

// signal is a writer of log lines that gets a value for a line.
type signal chan struct{}

func (s signal) Write(line []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default: // the first line is enough
	}
	return len(line), nil
}

// A final refusal takes one attempt, not MaxAttempts.
func TestFinalRefusalFailsAtOnce(t *testing.T) {
	t.Parallel()
	driver, dsn := sqlite(t)
	db := openDB(t, driver, dsn)
	s := table(t, db, sqlmarker.SQLite)
	commit(t, db, s, "order-1")
	r := relay(t, s, &sent{fate: func(sqlmarker.Queued) outbox.Result {
		return outbox.Result{Fate: outbox.Refused, Err: context.Canceled, Final: true}
	}}, nil)
	if _, err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	failures, err := s.Failures(t.Context(), 10)
	if err != nil || len(failures) != 1 || failures[0].Attempts != 1 {
		t.Errorf("%+v, %v", failures, err)
	}
}
