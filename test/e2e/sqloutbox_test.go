package e2e

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// outboxDSN is a database of a test's own as outbox.NAME.dsn has it.
func outboxDSN(t *testing.T, dialect string) (d *servers.Database, dsn string) {
	t.Helper()
	if dialect == "postgresql" {
		d = servers.PostgreSQL(t)
	} else {
		d = servers.MariaDB(t)
	}
	return d, d.URL()
}

// The printed statements go through the clients of the databases, and leave a table that migrate takes as its own.
func TestPrintedDDLMakesTheTable(t *testing.T) {
	t.Parallel()
	for dialect, client := range map[string]string{
		"postgresql": `psql -v ON_ERROR_STOP=1 "$DSN"`,
		"mysql":      `mariadb --host 127.0.0.1 --port "$PORT" --user root "$NAME"`,
	} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			_, dsn := outboxDSN(t, dialect)
			u, err := url.Parse(dsn)
			if err != nil {
				t.Fatal(err)
			}
			shell(t, fmt.Sprintf("DSN='%s' PORT=%s NAME=%s\n", dsn, u.Port(), strings.TrimPrefix(u.Path, "/"))+
				`msghandler outbox ddl --dialect `+dialect+` --producer orders | `+client+`
				msghandler outbox migrate --dsn "$DSN" --producer orders
				echo "INSERT INTO msghandler_outbox (routing_key) VALUES ('paid')" | `+client)
		})
	}
}

// shell runs commands with our programs in the PATH.
func shell(t *testing.T, commands string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
	cmd.Env = append(os.Environ(), "PATH="+programs.Directory()+":"+os.Getenv("PATH"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, output)
	}
}

// One of two coordinators is killed again and again while a service inserts rows. No message is lost, and every copy
// says that it is one.
func TestKilledCoordinatorLosesNoSQLRow(t *testing.T) {
	t.Parallel()
	const rows, kills = 3000, 3
	w := newWorld(t)
	paidQueue(w)
	d, dsn := outboxDSN(t, "postgresql")
	settings := []string{
		"MSGHANDLER_OUTBOX_SHOP_DSN=" + dsn, "MSGHANDLER_OUTBOX_SHOP_PRODUCER=orders", "MSGHANDLER_OUTBOX_SHOP_POLL=200ms",
	}
	if out, status := programs.Run(t, "msghandler", settings, "outbox", "migrate", "--database", "shop"); status != 0 {
		t.Fatal(out)
	}
	w.startCoordinators(2, settings...)
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	victim := w.coordinators[1]
	for part := range kills {
		from := part * rows / kills
		_, err := db.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO msghandler_outbox (id, routing_key, body)
			SELECT 'order-' || n, 'paid', 'order ' || n FROM generate_series(%d, %d) n`, from, from+rows/kills-1))
		if err != nil {
			t.Fatal(err)
		}
		servers.Eventually(t, 30*time.Second, "the victim holds rows, or none is left", func() bool {
			var held, waiting int
			if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FILTER (WHERE owner LIKE '%-' || $1 || '-%'),
				COUNT(*) FROM msghandler_outbox WHERE state = 1`, fmt.Sprint(victim.Cmd.Process.Pid)).
				Scan(&held, &waiting); err != nil {
				t.Fatal(err)
			}
			return held > 0 || waiting == 0
		})
		victim.Kill()
		w.restart(victim, settings...)
	}
	servers.Eventually(t, time.Minute, "every row is sent", func() bool {
		var unsent int
		if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM msghandler_outbox WHERE state <> 3`).
			Scan(&unsent); err != nil {
			t.Fatal(err)
		}
		return unsent == 0
	})
	checkCopies(t, w.channel(), rows)
}

// checkCopies demands that the queue has each message, and that no two copies of a message look like the first.
func checkCopies(t *testing.T, channel *amqp.Channel, rows int) {
	t.Helper()
	attempts := map[string][]int64{}
	for {
		d, more, err := channel.Get("paid", true)
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
		attempt, _ := d.Headers["msghandler-attempt"].(int64)
		attempts[d.MessageId] = append(attempts[d.MessageId], attempt)
	}
	if len(attempts) != rows {
		t.Errorf("%d messages have arrived, want %d", len(attempts), rows)
	}
	copies := 0
	for id, all := range attempts {
		slices.Sort(all)
		copies += len(all) - 1
		if all[0] < 1 || len(slices.Compact(slices.Clone(all))) != len(all) {
			t.Errorf("the copies of %s have the attempts %v", id, all)
		}
	}
	t.Logf("%d copies, all flagged", copies)
}
