package docs

import (
	"database/sql"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/msghandler/msghandler/test/servers"
)

// service is a server of others that a block demands by with=NAME. A page has the server for itself, and empty.
type service struct {
	// start returns the server's addresses by the ports that a reader's server has.
	start func(t *testing.T) (addresses map[string]string)
	mu    sync.Mutex
}

var services = map[string]*service{
	"postgresql": {start: usePostgreSQL},
	"mariadb":    {start: useMariaDB},
	"redis":      {start: useRedis},
	"rabbitmq":   {start: useRabbitMQ},
}

// demanded are the services of a block's word with.
func demanded(b *block) []string {
	return strings.FieldsFunc(b.words["with"], func(r rune) bool { return r == ',' })
}

// useServices starts the services of the blocks and returns the directory of their bridge. Services are taken in the
// order of their names, so that pages do not wait for each other.
func useServices(t *testing.T, blocks []*block) (dir string) {
	t.Helper()
	names := map[string]bool{}
	for _, b := range blocks {
		for _, name := range demanded(b) {
			names[name] = true
		}
	}
	addresses := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		s, known := services[name]
		if !known {
			t.Fatalf("%s: no service %s", blocks[0].page, name)
		}
		s.mu.Lock()
		t.Cleanup(s.mu.Unlock)
		maps.Copy(addresses, s.start(t))
	}
	return bridge(t, addresses)
}

func useRedis(t *testing.T) map[string]string {
	return map[string]string{"6379": servers.Redis(t).Addr}
}

func usePostgreSQL(t *testing.T) map[string]string {
	d := servers.PostgreSQL(t)
	at, err := url.Parse(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	dropDatabases(t, d, `SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database
		WHERE NOT datistemplate AND datname <> 'postgres' AND datname NOT LIKE 'test%'`, "DROP DATABASE %s WITH (FORCE)")
	return map[string]string{"5432": at.Host}
}

func useMariaDB(t *testing.T) map[string]string {
	d := servers.MariaDB(t)
	at, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	dropDatabases(t, d, `SELECT coalesce(group_concat(schema_name SEPARATOR ' '), '') FROM information_schema.schemata
		WHERE schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')
		AND schema_name NOT LIKE 'test%'`, "DROP DATABASE %s")
	return map[string]string{"3306": at.Addr}
}

// dropDatabases drops the databases that earlier pages have left. Those of other tests have names that begin with test.
func dropDatabases(t *testing.T, d *servers.Database, list, drop string) {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var left string
	if err := db.QueryRowContext(t.Context(), list).Scan(&left); err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(left) {
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf(drop, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// useRabbitMQ empties the default virtual host, which no other test uses.
func useRabbitMQ(t *testing.T) map[string]string {
	v := servers.RabbitMQ(t)
	broker, brokerErr := url.Parse(v.URL)
	m := v.Management()
	management, managementErr := url.Parse(m.URL)
	if brokerErr != nil || managementErr != nil {
		t.Fatal(brokerErr, managementErr)
	}
	const vhost, permissions = "/api/vhosts/%2F", "/api/permissions/%2F/guest"
	all := map[string]string{"configure": ".*", "write": ".*", "read": ".*"}
	for _, err := range []error{
		m.Call(http.MethodDelete, vhost, nil, nil), m.Call(http.MethodPut, vhost, nil, nil),
		m.Call(http.MethodPut, permissions, all, nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return map[string]string{"5672": broker.Host, "15672": management.Host}
}
