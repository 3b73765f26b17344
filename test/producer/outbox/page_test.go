package outbox_test

import (
	"database/sql"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox/shards"
)

var update = flag.Bool("update", false, "write the statements into the page")

// page is the page that shows statements.
const page = "../../../docs/reference/tables.md"

var block = regexp.MustCompile("(?s)<!-- ddl ([a-z-]+) -->\n```sql test=TestPageShowsTheDDL\n.*?```")

// The page shows the statements of DDL. After a change: go test ./test/producer/outbox -run
// TestPageShowsTheDDL -args -update
func TestPageShowsTheDDL(t *testing.T) {
	t.Parallel()
	statements, shown := ddlOf(t), 0
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	is := block.ReplaceAllStringFunc(string(text), func(found string) string {
		shown++
		name := block.FindStringSubmatch(found)[1]
		return "<!-- ddl " + name + " -->\n```sql test=TestPageShowsTheDDL\n" +
			strings.Join(statements[name], ";\n") + ";\n```"
	})
	if *update {
		if err := os.WriteFile(page, []byte(is), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if is != string(text) {
		t.Errorf("%s shows other statements than DDL returns", page)
	}
	if shown != len(statements) {
		t.Errorf("%s shows %d tables, want %d", page, shown, len(statements))
	}
}

// ddlOf returns the statements of each table for PostgreSQL, and of the outbox for MySQL. No call to the database is
// made.
func ddlOf(t *testing.T) map[string][]string {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	onMySQL, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.MySQL, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	leases, err := shards.NewLeases(shards.LeasesConfig{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for name, ddl := range map[string]func() ([]string, error){
		"outbox": markers.DDL, "outbox-mysql": onMySQL.DDL, "leases": leases.DDL, "inbox": inbox.DDL,
		"plain": func() ([]string, error) { return sqlmarker.OutboxDDL(sqlmarker.PostgreSQL, "orders", "") },
	} {
		if all[name], err = ddl(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
