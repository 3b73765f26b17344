// Package languages runs the producers that docs/ has in other languages than Go, as they are in the tree and on real
// servers, and holds each of them to the contract of docs/other-languages.md.
package languages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
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
	{"java-orders", java, mariaDB},
	{"node-orders", node, postgreSQL},
	{"python-http-orders", python, postgreSQL},
}

var (
	postgreSQL = databaseKind{
		dialect: sqlmarker.PostgreSQL, open: servers.PostgreSQL,
		url:     func(dsn, address string) string { return hostOf.ReplaceAllString(dsn, address) },
		waiting: `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
	}
	mariaDB = databaseKind{
		dialect: sqlmarker.MySQL, open: servers.MariaDB,
		url: func(dsn, address string) string {
			_, name, _ := strings.Cut(dsn, "/")
			return "jdbc:mariadb://" + address + "/" + name + "?user=root&connectTimeout=2000"
		},
		waiting: `SELECT variable_value FROM information_schema.global_status
			WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'`,
	}
	hostOf = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
)

// java compiles docs/java, with the libraries of Debian.
func java(t *testing.T) []string {
	t.Helper()
	var jars []string
	for _, name := range []string{"mariadb-java-client", "jackson-databind", "jackson-core", "jackson-annotations"} {
		jar := filepath.Join("/usr/share/java", name+".jar")
		if _, err := os.Stat(jar); err != nil {
			missing(t, jar+" is missing; scripts/install-test-servers.sh installs it")
		}
		jars = append(jars, jar)
	}
	sources, err := filepath.Glob("../../docs/java/*.java")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	classes, libraries := t.TempDir(), strings.Join(jars, ":")
	compile := exec.Command(servers.Tool(t, "javac"), append([]string{
		"--release", "17", "-Xlint:all,-serial", "-Werror", "-cp", libraries, "-d", classes,
	}, sources...)...)
	if output, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("compile docs/java: %v\n%s", err, output)
	}
	// The first compiler alone: the program does not live long enough for the second.
	return []string{servers.Tool(t, "java"), "-XX:TieredStopAtLevel=1", "-cp", classes + ":" + libraries, "Orders"}
}

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
