// Package languages runs the producers that docs/ has in other languages than Go, as they are in the tree and on real
// servers, and holds each of them to the contract of docs/other-languages.md.
package languages

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// language is a producer in a language.
type language struct {
	// name is both the name of the producer and its queue.
	name string
	// command returns the program and its arguments.
	command func(t *testing.T) []string
	kind    databaseKind
}

// databaseKind is where a producer keeps its orders and its markers.
type databaseKind struct {
	dialect sqlmarker.Dialect
	open    func(t testing.TB) *servers.Database
	// url names a database to the producer, by way of another address.
	url func(dsn, address string) string
	// waiting counts the transactions that wait for a lock.
	waiting string
}

var languages = []language{
	{"node-orders", node, postgreSQL},
	{"python-http-orders", python, postgreSQL},
}

var (
	postgreSQL = databaseKind{
		dialect: sqlmarker.PostgreSQL, open: servers.PostgreSQL,
		url:     func(dsn, address string) string { return hostOf.ReplaceAllString(dsn, address) },
		waiting: `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
	}
	hostOf = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
)

func node(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("../../docs/node/node_modules/pg"); err != nil {
		missing(t, "docs/node/node_modules is missing; scripts/install-test-servers.sh installs it")
	}
	return []string{servers.Tool(t, "node"), "../../docs/node/producer.mjs"}
}

func python(t *testing.T) []string {
	t.Helper()
	return []string{pythonWith(t, "psycopg2"), "../../docs/python/http_producer.py"}
}

// pythonWith finds a Python with these modules: the first Python of the PATH may have none.
func pythonWith(t *testing.T, modules ...string) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import "+strings.Join(modules, ", ")).Run() == nil {
			return python
		}
	}
	missing(t, "no python3 has "+strings.Join(modules, " and ")+"; scripts/install-test-servers.sh installs them")
	return ""
}

// missing ends the test: a laptop may do without a language, CI may not.
func missing(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
