package sqldb_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

// A key that the database cuts or converts is the key of another message, or of none. MariaDB's session is not strict.
func TestBadKeyFailsAtItsInsert(t *testing.T) {
	onEachTable(t, func(t *testing.T, r room, _ migrator, name string) {
		long := func(n int) string { return "'" + strings.Repeat("k", n) + "'" }
		var row string
		var good []string
		var bad map[int][]string
		switch name {
		case "msghandler_markers":
			row = "producer, verdict, state, shard_id, routing_key, created_at, id"
			good = []string{"'orders'", "2", "0", "0", "'paid'", "1", r.binary("1")}
			bad = map[int][]string{
				1: {"0", "'committed'", "-3"}, 2: {"5", "-1"}, 3: {"-1"}, 4: {long(300)}, 6: {r.binary(strings.Repeat("k", 300))},
			}
			if r.dialect != sqldb.SQLite {
				bad[0] = []string{long(200)}
			}
		case "msghandler_inbox":
			row = "consumer, created_at, message"
			good = []string{"'payments'", "1", r.binary("orders/1")}
			bad = map[int][]string{2: {r.binary(strings.Repeat("k", 600))}}
			if r.dialect != sqldb.SQLite {
				bad[0] = []string{long(200)}
			}
		default:
			return
		}
		if r.dialect == sqldb.SQLite {
			bad[len(good)-1] = append(bad[len(good)-1], "'a text'")
		}
		conn := must[*sql.Conn](t)(r.db.Conn(t.Context()))
		defer conn.Close()
		if r.dialect == sqldb.MySQL {
			if _, err := conn.ExecContext(t.Context(), "SET SESSION sql_mode = ''"); err != nil {
				t.Fatal(err)
			}
		}
		insert := func(values []string) error {
			_, err := conn.ExecContext(t.Context(),
				fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)", name, row, strings.Join(values, ", ")))
			return err
		}
		for at, values := range bad {
			for _, value := range values {
				changed := append([]string(nil), good...)
				if changed[at] = value; insert(changed) == nil {
					t.Errorf("%s takes %.30s among %s", name, value, row)
				}
			}
		}
		if err := insert(good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	})
}

// binary is a literal of bytes.
func (r room) binary(text string) string {
	if r.dialect == sqldb.PostgreSQL {
		return "'" + text + "'::BYTEA"
	}
	return fmt.Sprintf("X'%X'", text)
}
