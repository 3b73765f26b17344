// Package languages runs the producers that docs/ has in other languages than Go, as they are in the tree and on real
// servers, and holds each of them to the contract of docs/reference/languages-contract.md.
package languages

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) {
	status := servers.Stopping(m).Run()
	_ = os.RemoveAll(compilation.classes)
	os.Exit(status)
}

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
	{"spring-orders", spring, pooled(mariaDB)},
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
			return "jdbc:mariadb://" + address + "/" + name + "?user=root&connectTimeout=2000&socketTimeout=8000"
		},
		// A statement that cannot end while the test holds its row.
		waiting: `SELECT COUNT(*) FROM information_schema.processlist
			WHERE db = DATABASE() AND info LIKE 'INSERT INTO%'`,
	}
	hostOf = regexp.MustCompile(`127\.0\.0\.1:[0-9]+`)
)

// pooled has the driver keep connections: what a transaction leaves in a session meets the transaction after it.
func pooled(kind databaseKind) databaseKind {
	url := kind.url
	kind.url = func(dsn, address string) string {
		return url(dsn, address) + "&pool=true&maxPoolSize=20&poolValidMinDelay=0"
	}
	return kind
}

func java(t *testing.T) []string {
	t.Helper()
	return jvm(t, "Orders")
}

func spring(t *testing.T) []string {
	t.Helper()
	return jvm(t, "SpringOrders")
}

// jvm runs a program of examples/java with the libraries of Debian, once javac has compiled all programs there.
func jvm(t *testing.T, program string) []string {
	t.Helper()
	libraries := jars(t)
	classes, err := compiled(servers.Tool(t, "javac"), libraries)
	if err != nil {
		t.Fatalf("compile examples/java: %v", err)
	}
	// The first compiler alone: the program does not live long enough for the second.
	return []string{servers.Tool(t, "java"), "-XX:TieredStopAtLevel=1", "-cp", classes + ":" + libraries, program}
}

// jars finds the libraries, for a class path.
func jars(t *testing.T) string {
	t.Helper()
	var found []string
	for _, name := range []string{
		"mariadb-java-client", "jackson-databind", "jackson-core", "jackson-annotations", "spring3-core", "spring3-beans",
		"spring3-jdbc", "spring3-transaction", "spring3-context", "spring3-web", "commons-logging",
	} {
		jar := filepath.Join("/usr/share/java", name+".jar")
		if _, err := os.Stat(jar); err != nil {
			servers.Missing(t, jar+" is missing; scripts/install-test-servers.sh installs it")
		}
		found = append(found, jar)
	}
	return strings.Join(found, ":")
}

var compilation struct {
	sync.Once
	classes string
	err     error
}

// compiled compiles examples/java once for all tests, into a directory that TestMain removes.
func compiled(javac, libraries string) (classes string, err error) {
	compilation.Do(func() {
		sources, err := filepath.Glob("../../examples/java/*.java")
		more, moreErr := filepath.Glob("../../examples/java/*/*.java")
		more = append(more, "testdata/Mistakes.java")
		if compilation.err = errors.Join(err, moreErr); compilation.err != nil {
			return
		}
		if compilation.classes, compilation.err = os.MkdirTemp("", "msghandler-java-"); compilation.err != nil {
			return
		}
		output, err := exec.Command(javac, slices.Concat([]string{
			"--release", "17", "-Xlint:all,-serial,-classfile,-path", "-Werror", "-cp", libraries, "-d", compilation.classes,
		}, sources, more)...).CombinedOutput()
		if err != nil {
			compilation.err = fmt.Errorf("%w\n%s", err, output)
		}
	})
	return compilation.classes, compilation.err
}

func node(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("../../examples/node/node_modules/pg"); err != nil {
		servers.Missing(t, "examples/node/node_modules is missing; scripts/install-test-servers.sh installs it")
	}
	return []string{servers.Tool(t, "node"), "../../examples/node/producer.mjs"}
}

func python(t *testing.T) []string {
	t.Helper()
	return []string{servers.Python(t, "psycopg2"), "../../examples/python/http_producer.py"}
}
