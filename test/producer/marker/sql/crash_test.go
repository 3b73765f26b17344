package sql_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// child, in the environment, makes this test binary the producer process of a crash: DIALECT STEP DRIVER DSN.
const child = "TEST_SQL_MARKERS_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(child); text != "" {
		if err := produce(strings.SplitN(text, " ", 4)); err != nil {
			fmt.Println(err)
		}
		os.Exit(1) // its end is the kill
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

// The steps at which a producer is killed. The child prints a line at each step and waits to be killed.
const (
	stepBegun    = "begun"
	stepMarked   = "marked"
	stepBusiness = "business"
	stepCommit   = "committed"
	// stepAny: the child commits one order after the other until the kill.
	stepAny = "any"
)

// produce is a producer's process.
func produce(args []string) error {
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	step, d := args[1], database{sqlmarker.Dialect(number), args[2], args[3]}
	db, err := sql.Open(d.driver, d.dsn)
	if err != nil {
		return err
	}
	s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: d.dialect, Producer: "orders"})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if step == stepAny {
		for n := 0; ; n++ {
			id := fmt.Sprintf("any-%d-%d", os.Getpid(), n)
			if err := s.InTx(message(id), insertOrder(d.dialect, id))(ctx); err != nil {
				return err
			}
			reached("committed " + id)
		}
	}
	return oneOrder(ctx, d, db, s, step)
}

func oneOrder(ctx context.Context, d database, db *sql.DB, s *sqlmarker.Store, step string) error {
	here := func(now string) {
		if now == step {
			reached(now)
			select {}
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	here(stepBegun)
	if err := s.Mark(ctx, tx, step); err != nil {
		return err
	}
	here(stepMarked)
	if err := insertOrder(d.dialect, step)(ctx, tx); err != nil {
		return err
	}
	here(stepBusiness)
	if err := tx.Commit(); err != nil {
		return err
	}
	here(stepCommit)
	return nil
}

func reached(what string) { fmt.Println(what) }

// killed runs a producer process, kills the process after a number of lines, and returns the lines.
func killed(t *testing.T, d database, step string, lines int) []string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s %s", child, d.dialect, step, d.driver, d.dsn))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		said = append(said, scanner.Text())
		if len(said) == lines {
			_ = cmd.Process.Signal(syscall.SIGKILL)
		}
	}
	_ = cmd.Wait()
	if len(said) < lines {
		t.Fatalf("the producer ended by itself and said %q", said)
	}
	return said
}

func TestKilledProducerLeavesBothOrNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, shortLocks)
		orders(t, db)
		for _, step := range []string{stepBegun, stepMarked, stepBusiness, stepCommit} {
			killed(t, d, step, 1)
			want := marker.RolledBack
			if step == stepCommit {
				want = marker.Committed
			}
			// The database may not have noticed yet that its client is gone; until then the answer is UNKNOWN.
			var got marker.Verdict
			servers.Eventually(t, 30*time.Second, "an answer about "+step, func() bool {
				got = final(t, s, step)[step]
				return got.Definite()
			})
			if got != want || orderIDs(t, db)[step] != (want == marker.Committed) {
				t.Errorf("killed when %s: %v, and the order is there: %v", step, got, orderIDs(t, db)[step])
			}
		}
	})
}

func TestAnywhereKilledProducerLeavesBoth(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, shortLocks)
		orders(t, db)
		var said int
		for _, after := range []int{1, 7, 20, 33} {
			said += len(killed(t, d, stepAny, after))
		}
		// Read in one statement: the server may still be committing for a dead client.
		var ordered, markers int
		counts := "SELECT (SELECT COUNT(*) FROM orders), (SELECT COUNT(*) FROM msghandler_markers)"
		if err := db.QueryRowContext(t.Context(), counts).Scan(&ordered, &markers); err != nil {
			t.Fatal(err)
		}
		truth := orderIDs(t, db)
		found, err := s.Lookup(t.Context(), slices.Collect(maps.Keys(truth)), false)
		if err != nil {
			t.Fatal(err)
		}
		if markers != ordered || len(found) != len(truth) || len(truth) < said {
			t.Errorf("%d orders and %d markers; then %d orders, %d of them marked; the producers said %d",
				ordered, markers, len(truth), len(found), said)
		}
	})
}
