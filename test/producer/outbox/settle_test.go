package outbox_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// stubborn is a table whose Release fails for every batch with a certain message.
type stubborn struct {
	*sqlmarker.Store
	id string
}

var errStubborn = errors.New("this message cannot be recorded")

func (s *stubborn) Release(ctx context.Context, token string, outcomes []sqlmarker.Outcome) (int64, error) {
	if slices.ContainsFunc(outcomes, func(o sqlmarker.Outcome) bool { return o.ID == s.id }) {
		return 0, errStubborn
	}
	return s.Store.Release(ctx, token, outcomes)
}

func TestUnrecordableMessageStopsNoOther(t *testing.T) {
	t.Parallel()
	const all = 30
	for name, fate := range map[string]outbox.Fate{
		"sent": outbox.Sent, "refused": outbox.Refused, "unreached": outbox.Unreached,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t, "sqlite", second(sqlite(t)))
			s := &stubborn{table(t, db, sqlmarker.SQLite), "order-7"}
			commit(t, db, s.Store, numbered(all)...)
			to := &sent{fate: func(q sqlmarker.Queued) outbox.Result {
				if q.Message.ID == s.id {
					return outbox.Result{Fate: fate, Err: errors.New("why")}
				}
				return outbox.Result{Fate: outbox.Sent}
			}}
			watched := &noted{}
			r := relay(t, s, to, func(c *outbox.Config) { c.Observer = watched })
			if _, err := r.Pass(t.Context()); !errors.Is(err, errStubborn) {
				t.Errorf("the relay says %v", err)
			}
			if c := counts(t, s.Store); c.Sent != all-1 || c.Waiting != 1 {
				t.Errorf("%+v", c)
			}
			if len(watched.fates) != 1 || watched.fates[outbox.Sent] != all-1 {
				t.Errorf("the relay tells outcomes without a record: %v", watched.fates)
			}
		})
	}
}

// noted is an observer that adds up fates.
type noted struct{ fates map[outbox.Fate]int }

func (n *noted) Relayed(fate outbox.Fate, messages int) {
	if n.fates == nil {
		n.fates = map[outbox.Fate]int{}
	}
	n.fates[fate] += messages
}
func (*noted) Failed([]string)           {}
func (*noted) Counted(sqlmarker.Backlog) {}

// A foreign transaction holds a row, for longer than a statement waits.
func TestLockedRowStopsNoOtherRecord(t *testing.T) {
	t.Parallel()
	const all = 30
	d := servers.PostgreSQL(t)
	db := openDB(t, d.Driver, d.DSN)
	table(t, db, sqlmarker.PostgreSQL) // creates the table
	s, err := sqlmarker.New(sqlmarker.Config{
		DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders", LockTimeout: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, db, s, numbered(all)...)
	holder, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback() }()
	to := &sent{fate: func(q sqlmarker.Queued) outbox.Result {
		if q.Message.ID == "order-7" {
			hold(t, holder, q.Message.ID)
		}
		return outbox.Result{Fate: outbox.Sent}
	}}
	r := relay(t, s, to, func(c *outbox.Config) { c.Lock = 3 * time.Minute })
	if _, err := r.Pass(t.Context()); err == nil {
		t.Error("the relay says nothing of the held row")
	}
	if c := counts(t, s); c.Sent != all-1 || c.Waiting != 1 {
		t.Errorf("%+v", c)
	}
}

func hold(t *testing.T, tx *sql.Tx, id string) {
	t.Helper()
	_, err := tx.ExecContext(context.Background(), "UPDATE msghandler_markers SET owner = owner WHERE id = $1", []byte(id))
	if err != nil {
		t.Error(err)
	}
}

// slowPurge is a table whose Purge never ends.
type slowPurge struct {
	*sqlmarker.Store
	begun chan struct{}
}

func (s *slowPurge) Purge(ctx context.Context) (int64, error) {
	close(s.begun)
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestRelaySendsDuringAPurge(t *testing.T) {
	t.Parallel()
	db, to := openDB(t, "sqlite", second(sqlite(t))), &sent{}
	s := &slowPurge{table(t, db, sqlmarker.SQLite), make(chan struct{})}
	run(t, relay(t, s, to, func(c *outbox.Config) { c.PurgeInterval = time.Millisecond }))
	<-s.begun
	commit(t, db, s.Store, "1")
	servers.Eventually(t, time.Minute, "a message is sent beside the purge",
		func() bool { return counts(t, s.Store).Sent == 1 })
}

// timed is a table that records the time of a claim, and a sender that records its deadline.
type timed struct {
	*sqlmarker.Store
	asked, until time.Time
}

func (s *timed) Claim(ctx context.Context, request sqlmarker.ClaimRequest) (sqlmarker.Claim, error) {
	s.asked = time.Now()
	return s.Store.Claim(ctx, request)
}

func (s *timed) Send(ctx context.Context, messages []sqlmarker.Queued) []outbox.Result {
	s.until, _ = ctx.Deadline()
	return make([]outbox.Result, len(messages))
}

func TestSlowClaimLeavesTimeToRecord(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := &timed{Store: table(t, db, sqlmarker.SQLite)}
	commit(t, db, s.Store, "1")
	const lock = time.Minute
	r := relay(t, s, s, func(c *outbox.Config) { c.Lock = lock })
	if _, err := r.Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	if given := s.until.Sub(s.asked); given > lock*2/3 {
		t.Errorf("from the claim on the sender has %v of a lock of %v", given, lock)
	}
}

// A claim whose COMMIT is under way may lock its rows after the client is gone. So a relay that stops waits for the
// claim, and releases the rows.
func TestStoppedRelayWaitsForItsClaim(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	db := openDB(t, d.Driver, d.DSN)
	s := table(t, db, sqlmarker.PostgreSQL)
	commit(t, db, s, numbered(1)...)
	for _, statement := range []string{
		`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN PERFORM pg_sleep(0.5); RETURN NULL; EXCEPTION WHEN query_canceled THEN RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER slow AFTER UPDATE ON msghandler_markers DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW WHEN (OLD.owner IS NULL AND NEW.owner IS NOT NULL) EXECUTE FUNCTION slow()`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	number := func(query string) (n int) {
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	r := relay(t, s, &sent{}, func(*outbox.Config) {})
	go func() { defer close(stopped); r.Run(ctx) }()
	commits := func() int {
		return number(`SELECT COUNT(*) FROM pg_stat_activity
			WHERE datname = current_database() AND state = 'active' AND query ILIKE 'commit%'`)
	}
	servers.Eventually(t, patience, "a claim commits", func() bool { return commits() > 0 })
	stop()
	<-stopped
	servers.Eventually(t, patience, "no COMMIT is under way", func() bool { return commits() == 0 })
	if n := number(`SELECT COUNT(*) FROM msghandler_markers WHERE lock_until IS NOT NULL`); n > 0 {
		t.Errorf("%d rows are locked", n)
	}
}
