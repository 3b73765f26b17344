package upgrade_test

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

var update = flag.Bool("update", false, "write the statements into the pages")

// pages are the pages that show statements.
var pages = []string{"../../../../docs/reference/tables.md", "../../../../docs/howto/sql-outbox.md"}

var block = regexp.MustCompile("(?s)<!-- ddl ([a-z-]+) -->\n```sql\n.*?```")

// The pages show the statements of DDL. After a change: go test ./test/producer/outbox/upgrade -run
// TestPageShowsTheDDL -args -update
func TestPageShowsTheDDL(t *testing.T) {
	t.Parallel()
	statements := ddlOf(t)
	shown := 0
	for _, page := range pages {
		shown += showDDL(t, page, statements)
	}
	if shown != len(statements) {
		t.Errorf("the pages show %d tables, want %d", shown, len(statements))
	}
}

// showDDL compares the statements on a page, and returns how many tables the page shows.
func showDDL(t *testing.T, page string, statements map[string][]string) (shown int) {
	t.Helper()
	text, err := os.ReadFile(page) //nolint:gosec // the paths stand above
	if err != nil {
		t.Fatal(err)
	}
	is := block.ReplaceAllStringFunc(string(text), func(found string) string {
		shown++
		name := block.FindStringSubmatch(found)[1]
		return "<!-- ddl " + name + " -->\n```sql\n" + strings.Join(statements[name], ";\n") + ";\n```"
	})
	if *update {
		if err := os.WriteFile(page, []byte(is), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if is != string(text) {
		t.Errorf("%s shows other statements than DDL returns", page)
	}
	return shown
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
