package sqloutbox_test

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/sqloutbox"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// badRows break a rule of the table each, with the columns and values of their INSERT. The database would cut some of
// the values, or convert them, in a session that is not strict; a claim would fail for others.
var badRows = [][2]string{
	{"due_at", "NULL"},
	{"state", "0"},
	{"created_at", "-1"},
	{"created_at", "1700000000"},
	{"created_at", "'2026-11-28'"},
	{"claims", "2147483647"},
	{"attempts", "2147483647"},
	{"shard_id", "-1"},
	{"id", "''"},
	{"id", "'two words'"},
	{"id", "'-1'"},
	{"id", "'a\n'"},
	{"id", "REPEAT('h', 129)"},
	{"id", "REPEAT('h', 300)"},
	{"producer", "''"},
	{"producer", "'café'"},
	{"producer", "REPEAT('h', 300)"},
	{"exchange", "REPEAT('h', 300)"},
	{"exchange", "REPEAT('é', 128)"},
	{"exchange", "'amq.topic'"},
	{"exchange", "'a\tb'"},
	{"routing_key", "REPEAT('h', 300)"},
	{"routing_key", "''"},
	{"routing_key", "'a\nb'"},
	{"content_type", "REPEAT('h', 300)"},
	{"broker", "REPEAT('h', 300)"},
	{"headers", "'{\"a\"'"},
	{"headers", "'[1]'"},
	{"headers", "'{\"X-death\":\"1\"}'"},
	{"headers", "'{\"cc\":\"q\"}'"},
	{"headers", "CONCAT('{\"a\":\"', REPEAT('h', 140000), '\"}')"},
	{"headers", "' '"},
	{"headers", "'NULL'"},
	{"headers", "'\"a\"'"},
	{"headers", "'{\"a\":null}'"},
	{"headers", "'{\"b\":\"1\", \"a\":null, \"c\":\"null\"}'"},
	{"headers", "'{\"a\":1}'"},
	{"headers", "'{\"a\":true}'"},
	{"headers", "'{\"a\":[\"b\"]}'"},
	{"headers", "'{\"a\":{\"b\":\"c\"}}'"},
	{"delay_ms", "'1h'"},
	{"delay_ms", "-1"},
	{"delay_ms", "''"},
	{"delay_ms", "2592000001"},
	{"delay_ms", "REPEAT('1', 30)"},
}

// onSessions runs a test in sessions of both kinds of database; those of MariaDB cut and convert values.
func onSessions(t *testing.T, test func(s *site, exec func(statement string) error)) {
	onEach(t, func(s *site) {
		conn, err := s.db.Conn(s.t.Context())
		must.Succeed(s.t, err)
		defer conn.Close()
		exec := func(statement string) error {
			_, err := conn.ExecContext(s.t.Context(), statement)
			return err
		}
		if strings.HasPrefix(s.dsn, "mariadb") {
			must.Succeed(s.t, exec("SET SESSION sql_mode = ''"))
		}
		test(s, exec)
	})
}

// escaped is a literal of a text with backslashes.
func (s *site) escaped(text string) string {
	if strings.HasPrefix(s.dsn, "mariadb") {
		text = strings.ReplaceAll(text, `\`, `\\`)
	}
	return "'" + text + "'"
}

func TestBadRowFailsAtItsInsert(t *testing.T) {
	t.Parallel()
	onSessions(t, func(s *site, exec func(string) error) {
		escapes := [2]string{"headers", s.escaped(`{"x\u002Ddeath":"1"}`)}
		for _, row := range append(slices.Clip(badRows), escapes) {
			columns, values := "routing_key, "+row[0], "'paid', "+row[1]
			if row[0] == "routing_key" {
				columns, values = row[0], row[1]
			}
			if err := exec("INSERT INTO msghandler_outbox (" + columns + ") VALUES (" + values + ")"); err == nil {
				s.t.Errorf("%s = %s was taken", row[0], row[1])
			}
		}
	})
}

func TestRowsWithinTheRulesAreTaken(t *testing.T) {
	t.Parallel()
	onSessions(t, func(s *site, exec func(string) error) {
		for _, row := range [][2]string{
			{"id", "REPEAT('h', 128)"},
			{"id", "'a._:~-'"},
			{"exchange", "REPEAT('h', 255)"},
			{"exchange", "'AMQ.topic'"},
			{"headers", "NULL"},
			{"headers", "'null'"},
			{"headers", "''"},
			{"headers", "' null '"},
			{"headers", "'{}'"},
			{"headers", "'{\"a\":\"\",\"b\" : \"null, [1]\"}'"},
			{"headers", s.escaped(`{"a":"\"","b":"\\","c":"\\\"]","d":"\u00e9"}`)},
			{"headers", "CONCAT('{\"a\":\"', REPEAT(" + s.escaped(`\u00e9`) + ", 16000), '\"}')"},
			{"headers", "'{\"ccx\": \"café\"}'"},
			{"headers", s.escaped(`{"b":"1", "a\"x-b":"1", "caf\u00e9":"1"}`)},
			{"delay_ms", "2592000000"},
			{"delay_ms", "'5000'"},
			{"content_type", "NULL"},
			{"broker", "'events'"},
		} {
			err := exec("INSERT INTO msghandler_outbox (routing_key, " + row[0] + ") VALUES ('paid', " + row[1] + ")")
			if err != nil {
				s.t.Errorf("%s = %s: %v", row[0], row[1], err)
			}
		}
	})
}

// MySQL reads patterns with ICU, for which a bracket within brackets begins a set of its own. MariaDB reads them with
// PCRE, which takes such a bracket for a character. MySQL also refuses to match a binary text, as CHAR gives it without
// a character set.
func TestMySQLReadsEachPattern(t *testing.T) {
	t.Parallel()
	statements, err := sqlmarker.OutboxDDL(sqlmarker.MySQL, "orders", "")
	must.Succeed(t, err)
	ddl := strings.Join(statements, "\n")
	if binary := regexp.MustCompile(`\bCHAR\([0-9]+\)`).FindString(ddl); binary != "" {
		t.Errorf("%s is binary", binary)
	}
	patterns := regexp.MustCompile(`REGEXP '[^']*'`).FindAllString(ddl, -1)
	if len(patterns) == 0 {
		t.Error("no patterns")
	}
	nested := regexp.MustCompile(`\[[^]]*\[[^:]`)
	for _, pattern := range patterns {
		if nested.MatchString(pattern) {
			t.Errorf("MySQL refuses %s", pattern)
		}
	}
}

// MySQL before 8.0.16 has no constraints.
func TestOddTimesStopNoOtherRow(t *testing.T) {
	t.Parallel()
	onEach(t, func(s *site) {
		s.unchecked("milliseconds")
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
func TestLoadReadsNoBodyOverLimit(t *testing.T) {
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
		must.Succeed(s.t, err)
		claim, err := table.Claim(s.t.Context(), sqlmarker.ClaimRequest{Limit: 10, Lock: time.Minute})
		must.Succeed(s.t, err)
		slices.SortFunc(claim.Messages, func(a, b sqlmarker.Claimed) int { return cmp.Compare(a.ID, b.ID) })
		if len(claim.Messages) != 2 || claim.Messages[0].Bytes != 0 || claim.Messages[1].Bytes != 3 {
			s.t.Errorf("a body that is not loaded counts: %+v", claim.Messages) // as time to load, so the lock would last
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
	must.Succeed(t, s.db.QueryRowContext(t.Context(), "SELECT current_database() || '_ascii'").Scan(&name))
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
