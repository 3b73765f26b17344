package outbox_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// child, in the environment, makes this test binary a relay that dies in the middle of a batch: DIALECT DRIVER DSN.
const child = "TEST_OUTBOX_CHILD"

// The doomed relay claims batches of batchOfDead, and is killed after a fixed number of sent messages.
const (
	batchOfDead = 50
	sentByDead  = batchOfDead + batchOfDead/2
	lockOfDead  = 4 * time.Second
)

func TestMain(m *testing.M) {
	if text := os.Getenv(child); text != "" {
		if err := relayUntilKilled(strings.SplitN(text, " ", 3)); err != nil {
			fmt.Println(err)
		}
		os.Exit(1) // its end is the kill
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

// relayUntilKilled is the process of a relay.
func relayUntilKilled(args []string) error {
	number, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	db, err := sql.Open(args[1], args[2])
	if err != nil {
		return err
	}
	s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.Dialect(number), Producer: "orders"})
	if err != nil {
		return err
	}
	r, err := outbox.New(outbox.Config{
		Table: s, Sender: &doomed{}, Batch: batchOfDead, Lock: lockOfDead, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	r.Run(context.Background())
	return nil
}

// doomed is a sender that prints the ids of sent messages, and then hangs when its limit is reached.
type doomed struct{ sent int }

func (d *doomed) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	for i, q := range messages {
		if d.sent == sentByDead {
			select {}
		}
		fmt.Println(q.Message.ID)
		d.sent++
		results[i].Fate = outbox.Sent
	}
	return results
}

// killedInMidBatch runs such a relay, kills the process, and returns the ids of the sent messages.
func killedInMidBatch(t *testing.T, d sqlmarker.Dialect, driver, dsn string) (ids []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", child, d, driver, dsn))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for said := bufio.NewScanner(out); said.Scan(); {
		if ids = append(ids, said.Text()); len(ids) == sentByDead {
			_ = cmd.Process.Signal(syscall.SIGKILL)
		}
	}
	_ = cmd.Wait()
	if len(ids) != sentByDead {
		t.Fatalf("the relay ended by itself and said %q", ids)
	}
	return ids
}

func TestAnotherRelaySendsKilledRelaysRows(t *testing.T) {
	t.Parallel()
	onEachDSN(t, func(t *testing.T, d sqlmarker.Dialect, driver, dsn string) {
		db, to := openDB(t, driver, dsn), &sent{}
		s := table(t, db, d)
		commit(t, db, s, numbered(*orders)...)
		byDead := map[string]bool{}
		for _, id := range killedInMidBatch(t, d, driver, dsn) {
			byDead[id] = true
		}
		// The first batch was released. The second was claimed: half of the batch was sent, and half was not.
		if c := counts(t, s); c.Sent != batchOfDead {
			t.Fatalf("at the death of the relay %+v", c)
		}
		faster := func(c *outbox.Config) { c.Interval = 100 * time.Millisecond }
		run(t, relay(t, table(t, db, d), to, faster), relay(t, table(t, db, d), to, faster), relay(t, s, to, faster))
		servers.Eventually(t, patience, "all to be sent", func() bool { return counts(t, s).Sent == int64(*orders) })
		var again, flagged int
		for _, id := range numbered(*orders) {
			times := to.of(id)
			if len(times) > 0 && byDead[id] {
				again++
			}
			if len(times) > 0 && times[0] == 2 {
				flagged++
			}
			if len(times) > 1 || len(times) == 0 && !byDead[id] {
				t.Errorf("%s was sent %d times by living relays, and by the dead relay: %v", id, len(times), byDead[id])
			}
		}
		if again != batchOfDead/2 || flagged != batchOfDead {
			t.Errorf("%d were sent again, want %d; %d are flagged, want %d", again, batchOfDead/2, flagged, batchOfDead)
		}
		t.Logf("%d orders; %d were sent again when the lock of the killed relay had ended, all flagged", *orders, again)
	})
}

// slow is a sender that returns on a signal of the test, not when its context ends.
type slow struct {
	has  chan int
	done chan struct{}
}

func (s *slow) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	s.has <- len(messages)
	<-s.done
	results := make([]outbox.Result, len(messages))
	for i := range results {
		results[i].Fate = outbox.Refused
	}
	return results
}

func TestRelayRecordsNothingAfterItsLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *sql.DB, d sqlmarker.Dialect) {
		s, late, to := table(t, db, d), &slow{make(chan int), make(chan struct{})}, &sent{}
		commit(t, db, s, numbered(10)...)
		var said bytes.Buffer
		r := relay(t, s, late, func(c *outbox.Config) {
			c.Lock, c.MaxAttempts, c.Logger = 2*time.Second, 1, slog.New(slog.NewTextHandler(&said, nil))
		})
		passed := make(chan error, 1)
		go func() {
			_, err := r.Pass(context.WithoutCancel(t.Context()))
			passed <- err
		}()
		if n := <-late.has; n != 10 {
			t.Fatalf("the table has %d", n)
		}
		other := relay(t, table(t, db, d), to, nil)
		servers.Eventually(t, time.Minute, "its lock to end", func() bool {
			if _, err := other.Pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			return counts(t, s).Sent == 10
		})
		close(late.done)
		// On a busy machine the relay may have no time left to learn about the lost lock.
		if err := <-passed; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if c := counts(t, s); c.Sent != 10 || c.Failed != 0 || strings.Contains(said.String(), "level=ERROR") {
			t.Errorf("afterwards %+v, and the relay said %s", c, &said)
		}
		for _, id := range numbered(10) {
			if times := to.of(id); len(times) != 1 || times[0] != 2 {
				t.Errorf("%s was sent as claims %v, want a single flagged claim", id, times)
			}
		}
	})
}
