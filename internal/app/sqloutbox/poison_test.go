package sqloutbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/app/sqloutbox"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// Such rows would wait for ever and be counted by nobody, or would fail the claims of all others. An ORM that writes
// NULL into each column without a value makes the first.
func TestDatabaseRefusesRowsThatNobodyWouldSend(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		for column, value := range map[string]string{
			"due_at": "NULL", "state": "0", "created_at": "-1", "claims": "2147483647", "attempts": "2147483647",
		} {
			_, err := s.db.ExecContext(s.t.Context(),
				"INSERT INTO msghandler_outbox (routing_key, "+column+") VALUES ('paid', "+value+")")
			if err == nil || !strings.Contains(err.Error(), "msghandler_outbox_") {
				s.t.Errorf("%s = %s: %v", column, value, err)
			}
		}
	})
}

// MariaDB's columns have lengths of their own. A text of PostgreSQL takes a gigabyte, and a claim reads 200 rows.
func TestDatabaseRefusesLongTexts(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		for column, length := range map[string]int{
			"id": 256, "exchange": 256, "routing_key": 256, "content_type": 256, "broker": 256, "headers": 65536,
		} {
			_, err := s.db.ExecContext(s.t.Context(), fmt.Sprintf(
				"INSERT INTO msghandler_outbox (%s) VALUES (REPEAT('h', %d))", column, length))
			if err == nil {
				s.t.Errorf("%s takes %d bytes", column, length)
			}
		}
	})
}

// MySQL before 8.0.16 has no constraints.
func TestOddTimesStopNoOtherRow(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.exec("ALTER TABLE msghandler_outbox DROP CONSTRAINT msghandler_outbox_milliseconds")
		s.insert("id, routing_key, created_at", "'1', 'paid', -9223372036854775808")
		s.insert("id, routing_key, created_at", "'2', 'paid', 9223372036854775807")
		s.insert("id, routing_key", "'3', 'paid'")
		s.relay()
		if first, second := s.take("paid").MessageId, s.take("paid").MessageId; first != "1" || second != "3" {
			s.t.Errorf("%s and %s came", first, second)
		}
	})
}

// A few rows with huge bodies would fill the memory of the coordinator, at each of its starts.
func TestLoadReadsNoBodyOverTheLimit(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.insert("id, routing_key, body", "'1', 'paid', 'four'")
		s.insert("id, routing_key, body", "'2', 'paid', '€'")
		dialect := sqlmarker.PostgreSQL
		if strings.HasPrefix(s.dsn, "mariadb") {
			dialect = sqlmarker.MySQL
		}
		table, err := sqlmarker.NewOutbox(sqlmarker.OutboxConfig{
			DB: s.db, Dialect: dialect, Producer: "orders", MaxBody: 3,
		})
		if err != nil {
			s.t.Fatal(err)
		}
		claim, err := table.Claim(s.t.Context(), sqlmarker.ClaimRequest{Limit: 10, Lock: time.Minute})
		if err != nil {
			s.t.Fatal(err)
		}
		loaded, err := table.Load(s.t.Context(), claim.Token, claim.Messages)
		if err != nil || len(loaded) != 2 {
			s.t.Fatalf("%+v, %v", loaded, err)
		}
		four, three := loaded[0], loaded[1]
		if four.Message.Body != nil || four.Unreadable == nil ||
			four.Unreadable.Error() != "body is 4 bytes long, more than 3" {
			s.t.Errorf("of 4 bytes: %+v", four)
		}
		if string(three.Message.Body) != "€" || three.Unreadable != nil {
			s.t.Errorf("of 3 bytes: %+v", three)
		}
	})
}

func TestDatabaseWithoutAnEncodingIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgresql")
	var name string
	if err := s.db.QueryRowContext(t.Context(), "SELECT current_database() || '_ascii'").Scan(&name); err != nil {
		t.Fatal(err)
	}
	s.exec("CREATE DATABASE " + name + " ENCODING 'SQL_ASCII' TEMPLATE template0")
	settings := s.settings()
	settings.DSN = strings.Replace(s.dsn, strings.TrimSuffix(name, "_ascii"), name, 1)
	err := sqloutbox.Migrate(t.Context(), "shop", settings)
	if err == nil || !strings.Contains(err.Error(), "SQL_ASCII") {
		t.Errorf("%v", err)
	}
	servers.Eventually(t, 10*time.Second, "the database is dropped", func() bool {
		_, err := s.db.ExecContext(t.Context(), "DROP DATABASE "+name+" WITH (FORCE)")
		return err == nil
	})
}
