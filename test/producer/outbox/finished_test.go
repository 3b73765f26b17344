package outbox_test

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

var finished = flag.Int("finished", 200_000, "how many sent rows BenchmarkFinishedRows puts beside the messages")

// finishedRounds is how often each step is measured on each table, in turn.
const finishedRounds = 100

// fewFinished are the sent rows of the small table: enough for the statistics of the database, which plans badly for a
// table that it has never seen with rows.
const fewFinished = 1000

// The cost of a relay's steps on a plain outbox with many sent rows, next to one with few on the same server in the
// same run: medians, and their ratios.
func BenchmarkFinishedRows(b *testing.B) {
	for _, d := range []struct {
		dialect sqlmarker.Dialect
		open    func(testing.TB) *servers.Database
		// series is a SELECT of the numbers n.
		series func(from, to int) string
	}{
		{sqlmarker.PostgreSQL, servers.PostgreSQL, func(from, to int) string {
			return fmt.Sprintf("SELECT n FROM generate_series(%d, %d) n", from, to)
		}},
		{sqlmarker.MySQL, servers.MariaDB, func(from, to int) string {
			return fmt.Sprintf("SELECT seq AS n FROM seq_%d_to_%d", from, to)
		}},
	} {
		b.Run(d.dialect.String(), func(b *testing.B) {
			at := d.open(b)
			db := openDB(b, at.Driver, at.DSN)
			small, full := plainOutbox(b, db, d.dialect, "small"), plainOutbox(b, db, d.dialect, "full")
			for table, rows := range map[string]int{"small": fewFinished, "full": *finished} {
				const step = 500_000
				for from := 1; from <= rows; from += step {
					execute(b, db, `INSERT INTO `+table+`_outbox (id, exchange, routing_key, body, state, due_at, sent_at, cleaned_at)
						SELECT CONCAT('done-', n), 'orders', 'order.paid', '{"order": 1001, "amount": 99}', 3, NULL, 1, 1
						FROM (`+d.series(from, min(from+step-1, rows))+`) numbers`)
				}
				execute(b, db, map[sqlmarker.Dialect]string{
					sqlmarker.PostgreSQL: "VACUUM ANALYZE ", sqlmarker.MySQL: "ANALYZE TABLE ",
				}[d.dialect]+table+"_outbox")
			}
			for b.Loop() {
				compareFinished(b, db, small, full)
			}
		})
	}
}

func plainOutbox(b *testing.B, db *sql.DB, d sqlmarker.Dialect, name string) *sqlmarker.Outbox {
	b.Helper()
	o, err := sqlmarker.NewOutbox(sqlmarker.OutboxConfig{DB: db, Dialect: d, Producer: "orders", Table: name + "_outbox"})
	if err != nil {
		b.Fatal(err)
	}
	if err := o.Migrate(b.Context()); err != nil {
		b.Fatal(err)
	}
	return o
}

func execute(b *testing.B, db *sql.DB, statement string) {
	b.Helper()
	if _, err := db.ExecContext(b.Context(), statement); err != nil {
		b.Fatalf("%s: %v", statement, err)
	}
}

// compareFinished measures the steps of a relay on both tables, in turn.
func compareFinished(b *testing.B, db *sql.DB, small, full *sqlmarker.Outbox) {
	b.Helper()
	took := map[string][]time.Duration{}
	for round := range finishedRounds {
		for name, o := range map[string]*sqlmarker.Outbox{"small": small, "full": full} {
			for step, cost := range relaySteps(b, db, o, name, round) {
				took[name+" "+step] = append(took[name+" "+step], cost)
			}
		}
	}
	median := func(key string) time.Duration {
		slices.Sort(took[key])
		return took[key][len(took[key])/2]
	}
	for _, step := range []string{"insert", "claim", "release", "idle", "count"} {
		of, than := median("full "+step), median("small "+step)
		b.Logf("%-8s %10v with many sent rows, %10v with few", step, of.Round(time.Microsecond), than.Round(time.Microsecond))
		b.ReportMetric(float64(of)/float64(than), step+"/small")
	}
}

// relaySteps inserts, claims and releases a batch, and then finds nothing.
func relaySteps(
	b *testing.B, db *sql.DB, o *sqlmarker.Outbox, table string, round int,
) map[string]time.Duration {
	b.Helper()
	const batch = 200
	took := map[string]time.Duration{}
	step := func(name string, do func(ctx context.Context) error) {
		begun := time.Now()
		if err := do(b.Context()); err != nil {
			b.Fatal(name, err)
		}
		took[name] = time.Since(begun)
	}
	step("insert", func(context.Context) error {
		for i := range batch {
			execute(b, db, fmt.Sprintf(`INSERT INTO %s_outbox (id, exchange, routing_key, body)
				VALUES ('new-%d-%d', 'orders', 'order.paid', '{"order": 1001, "amount": 99}')`, table, round, i))
		}
		return nil
	})
	var claim sqlmarker.Claim
	step("claim", func(ctx context.Context) (err error) {
		claim, err = o.Claim(ctx, sqlmarker.ClaimRequest{Limit: batch, Lock: time.Minute})
		return err
	})
	if len(claim.Messages) != batch {
		b.Fatalf("%d messages were claimed", len(claim.Messages))
	}
	outcomes := make([]sqlmarker.Outcome, batch)
	for i, m := range claim.Messages {
		outcomes[i] = sqlmarker.Outcome{ID: m.ID, State: sqlmarker.StateSent}
	}
	step("release", func(ctx context.Context) error {
		_, err := o.Release(ctx, claim.Token, outcomes)
		return err
	})
	step("idle", func(ctx context.Context) error {
		_, err := o.Claim(ctx, sqlmarker.ClaimRequest{Limit: batch, Lock: time.Minute})
		return err
	})
	step("count", func(ctx context.Context) error {
		_, err := o.Backlog(ctx)
		return err
	})
	return took
}
