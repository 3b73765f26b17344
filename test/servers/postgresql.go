package servers

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that makes the databases
)

// postgreSQL is PostgreSQL with the durability that tests need: commits outlive a kill of the server, not a loss of
// power.
var postgreSQL = &sqlKind{
	driver: "pgx",
	dsn: func(port int, database string) string {
		return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", loopback(port), database)
	},
	drop:   "DROP DATABASE %s WITH (FORCE)",
	halt:   syscall.SIGQUIT,
	launch: launchPostgreSQL,
}

// PostgreSQL makes an empty database on the PostgreSQL server of this process, which Main stops.
func PostgreSQL(t testing.TB) *Database {
	t.Helper()
	needPostgreSQL(t)
	return sharedServer(t, postgreSQL).database(t)
}

// PrivatePostgreSQL starts a server of the test's own, to be hurt.
func PrivatePostgreSQL(t testing.TB) *Database {
	t.Helper()
	needPostgreSQL(t)
	return private(t, postgreSQL)
}

// DurablePostgreSQL starts a server of the test's own that syncs each commit to the disk, as services have it. settings
// are such as "max_wal_size=4GB".
func DurablePostgreSQL(t testing.TB, settings ...string) *Database {
	t.Helper()
	needPostgreSQL(t)
	durable := *postgreSQL
	durable.launch = func(dir string, port int) (*process, error) {
		p, err := launchPostgreSQL(dir, port)
		if err != nil {
			return nil, err
		}
		for _, setting := range append([]string{"fsync=on"}, settings...) {
			p.args = append(p.args, "-c", setting) // the last value of a setting counts
		}
		return p, nil
	}
	return private(t, &durable)
}

func needPostgreSQL(t testing.TB) {
	t.Helper()
	if postgreSQLTool("initdb") == "" {
		Missing(t, "PostgreSQL is not installed; scripts/install-test-servers.sh installs it")
	}
}

func postgreSQLTool(name string) string {
	return newestTool(name, "/usr/lib/postgresql/*/bin/"+name, "/usr/pgsql-*/bin/"+name)
}

func launchPostgreSQL(dir string, port int) (*process, error) {
	as, err := notRoot(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(postgreSQLTool("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync", "--no-instructions")
	initdb.Dir = dir
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	args := []string{
		"-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "fsync=off", "-c", "max_connections=200",
	}
	return &process{path: postgreSQLTool("postgres"), args: args, dir: dir, as: as}, nil
}

// notRoot is the user of the PostgreSQL process, which must not be root, and gives this user the directory; nil is
// the user of this process.
func notRoot(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
	}
	uid, _ := strconv.ParseUint(account.Uid, 10, 32)
	gid, _ := strconv.ParseUint(account.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}
