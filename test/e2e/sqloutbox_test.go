package e2e

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
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

// pageCommands are the commands of docs/howto/sql-outbox.md for a database.
func pageCommands(t *testing.T, dialect string) (all []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/howto/sql-outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("(?s)<!-- run "+dialect+" -->\n```sh\n(.*?)```").
		FindAllStringSubmatch(string(page), -1) {
		all = append(all, found[1])
	}
	if len(all) != 2 {
		t.Fatalf("docs/howto/sql-outbox.md has %d commands for %s", len(all), dialect)
	}
	return all
}

// The page's commands run as written, and only the address of the database is the test's. With a poll of an hour the
// message of PostgreSQL can come by the notification alone.
func TestSQLOutboxPageRunsAsWritten(t *testing.T) {
	t.Parallel()
	for dialect, poll := range map[string]string{"postgresql": "1h", "mysql": "200ms"} {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			paidQueue(w)
			_, dsn := outboxDSN(t, dialect)
			u, err := url.Parse(dsn)
			if err != nil {
				t.Fatal(err)
			}
			here := strings.NewReplacer(
				"postgres://postgres@127.0.0.1:5432/shop", dsn, "mariadb://root@127.0.0.1:3306/shop", dsn,
				"--port 3306 --user root shop", "--port "+u.Port()+" --user root "+strings.TrimPrefix(u.Path, "/"))
			commands := pageCommands(t, dialect)
			migrate, insert := here.Replace(commands[0]), here.Replace(commands[1])
			shell(t, migrate)
			w.startCoordinators(1, "MSGHANDLER_OUTBOX_SHOP_DSN="+dsn, "MSGHANDLER_OUTBOX_SHOP_PRODUCER=orders",
				"MSGHANDLER_OUTBOX_SHOP_POLL="+poll)
			variables := regexp.MustCompile(`(?m)^export .*\n`).FindAllString(migrate, -1)
			shell(t, strings.Join(variables, "")+insert)
			delivered := awaitMessage(t, w.channel(), "paid")
			if delivered.MessageId != "1001" || delivered.AppId != "orders" || string(delivered.Body) != `{"order": 1001}` {
				t.Errorf("the consumer got %+v", delivered)
			}
			if w.coordinators[0].HasSaid("level=WARN") && w.coordinators[0].HasSaid("notifications of the database") {
				t.Error("the coordinator does not listen")
			}
			w.coordinators[0].Stop(30 * time.Second)
		})
	}
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

// awaitMessage takes the next message of a queue.
func awaitMessage(t *testing.T, channel *amqp.Channel, queue string) (delivered amqp.Delivery) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "a message arrives", func() (found bool) {
		var err error
		if delivered, found, err = channel.Get(queue, true); err != nil {
			t.Fatal(err)
		}
		return found
	})
	return delivered
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
