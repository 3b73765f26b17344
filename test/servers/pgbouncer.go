package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// PgBouncer starts PgBouncer in transaction mode before the server of a PostgreSQL database, and returns the DSN of the
// database through PgBouncer. It stops when the test ends.
func PgBouncer(t testing.TB, d *Database) (dsn string) {
	t.Helper()
	path := newestTool("pgbouncer", "/usr/sbin/pgbouncer")
	if path == "" {
		Missing(t, "PgBouncer is not installed; scripts/install-test-servers.sh installs it")
	}
	dir, err := os.MkdirTemp("", "msghandler-pgbouncer-") //nolint:usetesting // reached by another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	as, err := notRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	proc := &process{path: path, args: []string{"pgbouncer.ini"}, dir: dir, as: as}
	for name, content := range map[string]string{
		"users": `"postgres" ""`,
		"pgbouncer.ini": fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = users
pool_mode = transaction
default_pool_size = 2
`, d.Server.port, ports[0]),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := proc.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proc.end(syscall.SIGQUIT) })
	bouncer := &SQLServer{kind: postgreSQL, port: ports[0], proc: proc}
	if err := poll(sqlStartTimeout, func() (bool, error) { return bouncer.exec("SELECT 1") == nil, nil }); err != nil {
		t.Fatal(err, proc.output())
	}
	return strings.Replace(d.DSN, loopback(d.Server.port), loopback(ports[0]), 1)
}
