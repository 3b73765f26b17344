package modeldb_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/markertest"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

// knowsAll fails for statements that the model does not know.
func knowsAll(t *testing.T, server *modeldb.Server) {
	t.Helper()
	if unknown := server.Unknown(); len(unknown) > 0 {
		t.Errorf("unknown statements: %q", unknown)
	}
}

// TestModelHoldsMarkers has the SDK's suite of all marker stores hold on the model.
func TestModelHoldsMarkers(t *testing.T) {
	server := modeldb.NewServer("shop", nil)
	markertest.Run(t, func(t *testing.T) marker.Store {
		db := server.Open()
		t.Cleanup(func() { _ = db.Close() })
		s := get(sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: nameOf(t)}))(t)
		must.Succeed(t, s.Migrate(t.Context()))
		return s
	})
	knowsAll(t, server)
}

// nameOf names a producer for each test, within the length of a producer's name.
func nameOf(t *testing.T) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(t.Name())))
}

// claimed is a claim of up to two messages.
func claimed(t *testing.T, table interface {
	Claim(ctx context.Context, request sqlmarker.ClaimRequest) (sqlmarker.Claim, error)
}, broker string,
) sqlmarker.Claim {
	t.Helper()
	request := sqlmarker.ClaimRequest{Owner: "relay", Limit: 2, Lock: 10 * time.Second, Broker: broker}
	return get(table.Claim(t.Context(), request))(t)
}

func TestModelHoldsMessageTable(t *testing.T) {
	inBubble(t, func(t *testing.T, server *modeldb.Server, db *sql.DB, _ troubles) {
		s := get(sqlmarker.New(sqlmarker.Config{
			DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders", Shards: 2, Retention: time.Hour,
		}))(t)
		must.Succeed(t, s.Migrate(t.Context()))
		for i := range 5 {
			m := producer.Message{ID: fmt.Sprint("m", i), Exchange: "events", RoutingKey: "order", Body: []byte("x")}
			must.Succeed(t, s.Commit(t.Context(), m, func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO shop (id, word) VALUES ($1, 'ordered')", 10+i)
				return err
			}))
		}
		first, second := claimed(t, s, ""), claimed(t, s, "")
		if len(first.Messages) != 2 || len(second.Messages) != 2 || first.Messages[0].ID == second.Messages[0].ID {
			t.Errorf("claims of %v and %v", first, second)
		}
		loaded := get(s.Load(t.Context(), first.Token, first.Messages))(t)
		if len(loaded) != 2 || string(loaded[0].Message.Body) != "x" || loaded[1].Message.Exchange != "events" {
			t.Errorf("loaded %+v", loaded)
		}
		outcomes := []sqlmarker.Outcome{
			{ID: first.Messages[0].ID, Shard: first.Messages[0].Shard, State: sqlmarker.StateSent},
			{ID: first.Messages[1].ID, Shard: first.Messages[1].Shard, State: sqlmarker.StateFailed, Refused: true, Error: "no"},
		}
		if held := get(s.Release(t.Context(), first.Token, outcomes))(t); held != 2 {
			t.Errorf("%d of the claim are released", held)
		}
		time.Sleep(11 * time.Second)
		if late := get(s.Release(t.Context(), "other", outcomes))(t); late != 0 {
			t.Errorf("a stranger releases %d messages", late)
		}
		if c := get(s.Counts(t.Context()))(t); c.Waiting != 3 || c.Sent != 1 || c.Failed != 1 {
			t.Errorf("counts %+v", c)
		}
		if again := get(s.Retry(t.Context(), first.Messages[1].ID))(t); again != 1 {
			t.Errorf("%d messages are retried", again)
		}
		must.Succeed(t, s.Delete(t.Context(), []string{"m0", "m1", "m2", "m3", "m4"}))
		time.Sleep(2 * time.Hour)
		if removed := get(s.Purge(t.Context()))(t); removed != 5 {
			t.Errorf("%d rows are purged", removed)
		}
		knowsAll(t, server)
	})
}

func TestModelHoldsPlainOutbox(t *testing.T) {
	inBubble(t, func(t *testing.T, server *modeldb.Server, db *sql.DB, _ troubles) {
		o := get(sqlmarker.NewOutbox(sqlmarker.OutboxConfig{
			DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders", MaxBody: 100, Retention: time.Hour,
		}))(t)
		must.Succeed(t, o.Migrate(t.Context()))
		const insert = "INSERT INTO msghandler_outbox (exchange, routing_key, body, broker) VALUES ('events', 'order', "
		must.Succeed(t, exec(db, insert+"'x', '')"))
		must.Succeed(t, exec(db, insert+"'y', 'other')"))
		if err := exec(db, "INSERT INTO msghandler_outbox (body) VALUES ('x')"); stateOf(err) != "23514" {
			t.Errorf("a row without a destination: %v", err)
		}
		c := claimed(t, o, "other")
		loaded := get(o.Load(t.Context(), c.Token, c.Messages))(t)
		if len(loaded) != 1 || string(loaded[0].Message.Body) != "y" || loaded[0].Message.Broker != "other" {
			t.Errorf("loaded %+v", loaded)
		}
		get(o.Release(t.Context(), c.Token, []sqlmarker.Outcome{{ID: loaded[0].Message.ID, State: sqlmarker.StateSent}}))(t)
		if b := get(o.Backlog(t.Context()))(t); b.Waiting != 1 {
			t.Errorf("backlog %+v", b)
		}
		time.Sleep(2 * time.Hour)
		if removed := get(o.Purge(t.Context()))(t); removed != 1 {
			t.Errorf("%d rows are purged", removed)
		}
		knowsAll(t, server)
	})
}

func TestModelHoldsInbox(t *testing.T) {
	inBubble(t, func(t *testing.T, server *modeldb.Server, db *sql.DB, next troubles) {
		inbox := get(sqlinbox.New(sqlinbox.Config{
			DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "books", Retention: time.Hour,
		}))(t)
		must.Succeed(t, inbox.Migrate(t.Context()))
		handler := inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO shop (id, word) VALUES ($1, $2)", 10+len(m.Body), m.ID)
			return err
		})
		m := &consumer.Message{Producer: "orders", ID: "m1", Body: []byte("x")}
		next[modeldb.Commit] = modeldb.Trouble{Cut: modeldb.CutAfter}
		if err := handler.Handle(t.Context(), m); err == nil {
			t.Error("a lost answer is no error")
		}
		if err := handler.Handle(t.Context(), m); !errors.Is(err, consumer.ErrDuplicate) {
			t.Errorf("the second copy: %v", err)
		}
		both := make(chan error, 2)
		other := &consumer.Message{Producer: "orders", ID: "m2", Body: []byte("xx")}
		for range 2 {
			go func() { both <- handler.Handle(t.Context(), other) }()
		}
		synctest.Wait()
		if a, b := <-both, <-both; errors.Is(a, consumer.ErrDuplicate) == errors.Is(b, consumer.ErrDuplicate) {
			t.Errorf("two copies at once: %v, %v", a, b)
		}
		if n := count(t, server); n != 4 {
			t.Errorf("%d effects", n-2)
		}
		time.Sleep(2 * time.Hour)
		if removed := get(inbox.Purge(t.Context()))(t); removed != 2 {
			t.Errorf("%d rows are purged", removed)
		}
		knowsAll(t, server)
	})
}
