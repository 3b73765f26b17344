package shards_test

import (
	"bufio"
	"context"
	"database/sql"
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
	"github.com/msghandler/msghandler/producer/outbox/shards"
	"github.com/msghandler/msghandler/test/producer/outbox/databases"
	"github.com/msghandler/msghandler/test/servers"
)

// child, in the environment, makes this test binary a relay of shards that dies in the middle of a batch: DIALECT
// DRIVER DSN.
const child = "TEST_SHARDS_CHILD"

// The doomed relay sends this many messages, and dies in the middle of its next batch of two or more.
const (
	sentBefore  = 20
	ownerOfDead = "doomed"
	lastWord    = "in the middle of a batch"
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
	d := databases.Database{Dialect: sqlmarker.Dialect(number)}
	s, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: d.Dialect, Producer: "orders", Shards: allShards})
	if err != nil {
		return err
	}
	l, err := shards.NewLeases(leasesConfig(d, db, ownerOfDead))
	if err != nil {
		return err
	}
	held, err := shards.New(shards.Config{Tables: shards.Of(s), Leases: l})
	if err != nil {
		return err
	}
	r, err := outbox.New(outbox.Config{
		Table: held, Sender: &doomed{}, Batch: 20, Lock: 8 * time.Second, Interval: 50 * time.Millisecond,
		Owner: ownerOfDead, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	r.Run(context.Background())
	return nil
}

// doomed is a sender that prints the ids of sent messages, and hangs when half of its last batch is sent.
type doomed struct{ sent int }

func (d *doomed) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	results := make([]outbox.Result, len(messages))
	last := d.sent >= sentBefore && len(messages) > 1
	for i, q := range messages {
		if last && i == len(messages)/2 {
			fmt.Println(lastWord)
			select {}
		}
		fmt.Println(q.Message.ID)
		d.sent++
		results[i].Fate = outbox.Sent
	}
	return results
}

// death lists the messages that a killed relay had sent, and the messages that the relay held.
type death struct{ sent, locked map[string]bool }

// doom starts such a relay, and kills the process when half of its last batch is sent.
func doom(t *testing.T, d databases.Database, db *sql.DB) <-chan death {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s %s", child, d.Dialect, d.Driver, d.DSN))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	died := make(chan death, 1)
	go func() {
		ids, killed := map[string]bool{}, false
		for said := bufio.NewScanner(out); said.Scan(); {
			if said.Text() == lastWord {
				killed = true
				_ = cmd.Process.Signal(syscall.SIGKILL)
				continue
			}
			ids[said.Text()] = true
		}
		_ = cmd.Wait()
		if !killed {
			t.Errorf("the relay ended by itself and said %v", ids)
		}
		died <- death{ids, lockedBy(t, db, ownerOfDead)}
	}()
	return died
}

// lockedBy returns the messages that a relay holds.
func lockedBy(t *testing.T, db *sql.DB, owner string) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	rows, err := db.QueryContext(t.Context(),
		"SELECT id FROM msghandler_markers WHERE owner LIKE '"+owner+"/%' AND lock_until IS NOT NULL")
	if err != nil {
		t.Error(err)
		return ids
	}
	defer rows.Close()
	for rows.Next() {
		var id []byte
		if err := rows.Scan(&id); err != nil {
			t.Error(err)
		}
		ids[string(id)] = true
	}
	if err := rows.Err(); err != nil {
		t.Error(err)
	}
	return ids
}

// Sixteen shards, four relays; a relay is killed in the middle of a batch. No message is lost. Every message that was
// sent twice was sent and not recorded by the dead relay, and sent again after the end of the lock.
func TestFourShardRelaysOneKilled(t *testing.T) {
	t.Parallel()
	databases.OnEach(t, func(t *testing.T, d databases.Database) {
		db := d.Open(t)
		s, to := store(t, d, db, nil), &databases.Recorder{}
		leases(t, d, db, "") // creates the table
		died := doom(t, d, db)
		for n := range 3 {
			held := table(t, shards.Of(store(t, d, db, nil)), leases(t, d, db, fmt.Sprint("relay-", n)))
			// On a slow machine no lock of those that live ends before the outcome is recorded.
			databases.Run(t, relayLocking(t, held, to, 3*patience))
		}
		servers.Eventually(t, patience, "four relays with four shards each", func() bool {
			return fmt.Sprint(sizes(heldBy(t, db))) == "[4 4 4 4]"
		})
		ids := databases.Numbered("order", *orders)
		for part := range 10 {
			commit(t, db, s, ids[part*len(ids)/10:(part+1)*len(ids)/10]...)
		}
		var dead death
		servers.Eventually(t, patience, "a relay to die in the middle of a batch", func() bool {
			select {
			case dead = <-died:
				return true
			default:
			}
			if sentRows(t, s) == len(ids) { // the others had the relay's shards for a while, and took its part
				more := databases.Numbered(fmt.Sprint("more-", len(ids)), *orders/10)
				commit(t, db, s, more...)
				ids = append(ids, more...)
			}
			return false
		})
		servers.Eventually(t, patience, "all to be sent", func() bool { return sentRows(t, s) == len(ids) })
		servers.Eventually(t, patience, "three relays with all shards", func() bool {
			return fmt.Sprint(sizes(heldBy(t, db))) == "[5 5 6]"
		})
		account(t, ids, to, dead.sent, dead.locked)
	})
}

// account balances the books. The dead relay had sent the messages byDead, and held the messages locked at its death.
func account(t *testing.T, ids []string, to *databases.Recorder, byDead, locked map[string]bool) {
	t.Helper()
	again, taken := 0, 0
	for _, id := range ids {
		sent := to.Of(id)
		switch {
		case len(sent) == 0 && byDead[id] && !locked[id]: // sent and recorded by the dead relay
		case len(sent) == 1 && byDead[id] && locked[id] && sent[0].Claims == 2: // sent, and not recorded
			again++
		case len(sent) == 1 && !byDead[id] && locked[id] && sent[0].Claims == 2: // held, and not sent
			taken++
		case len(sent) == 1 && !byDead[id] && !locked[id] && sent[0].Claims == 1:
		default:
			t.Errorf("%s was sent %d times by living relays (%+v); by the dead relay: %v, held by the dead relay: %v",
				id, len(sent), sent, byDead[id], locked[id])
		}
	}
	if again == 0 || taken == 0 || again+taken != len(locked) {
		t.Errorf("%d sent again and %d taken over, and the dead relay held %d", again, taken, len(locked))
	}
	t.Logf("%d orders in %d shards; the killed relay held %d; after its lock %d were sent again, %d for the first time",
		len(ids), allShards, len(locked), again, taken)
}
