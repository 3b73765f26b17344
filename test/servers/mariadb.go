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

	_ "github.com/go-sql-driver/mysql" // the driver that makes the databases
)

// mariaDB is MariaDB with the durability that tests need: commits outlive a kill of the server, not a loss of power.
var mariaDB = &sqlKind{
	driver: "mysql",
	dsn: func(port int, database string) string {
		return fmt.Sprintf("root@tcp(%s)/%s", loopback(port), database)
	},
	drop:   "DROP DATABASE %s",
	halt:   syscall.SIGKILL,
	launch: launchMariaDB,
}

// MariaDB makes an empty database on the MariaDB server of this process, which Main stops.
func MariaDB(t testing.TB) *Database {
	t.Helper()
	needMariaDB(t)
	return sharedServer(t, mariaDB).database(t)
}

// PrivateMariaDB starts a server of the test's own, to be hurt.
func PrivateMariaDB(t testing.TB) *Database {
	t.Helper()
	needMariaDB(t)
	return private(t, mariaDB)
}

// GaleraMariaDB starts a Galera cluster of one node.
func GaleraMariaDB(t testing.TB) *Database {
	t.Helper()
	needMariaDB(t)
	library := newestTool("libgalera_smm.so", "/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera*/libgalera_smm.so")
	if library == "" {
		Missing(t, "the Galera library of MariaDB is not installed")
	}
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	node := *mariaDB
	node.launch = func(dir string, port int) (*process, error) {
		p, err := launchMariaDB(dir, port)
		if err == nil {
			p.args = append(p.args, "--wsrep-on=ON", "--wsrep-provider="+library, "--wsrep-cluster-address=gcomm://",
				"--wsrep-node-address=127.0.0.1", "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2",
				"--wsrep-provider-options=gmcast.listen_addr=tcp://"+loopback(ports[0])+";gcache.size=8M;pc.bootstrap=true")
		}
		return p, err
	}
	return private(t, &node)
}

func needMariaDB(t testing.TB) {
	t.Helper()
	if mariaDBTool("mariadbd") == "" || mariaDBTool("mariadb-install-db") == "" {
		Missing(t, "MariaDB is not installed; scripts/install-test-servers.sh installs it")
	}
}

func mariaDBTool(name string) string {
	return newestTool(name, "/usr/sbin/"+name, "/usr/libexec/"+name)
}

func launchMariaDB(dir string, port int) (*process, error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	data, scratch := filepath.Join(dir, "data"), filepath.Join(dir, "tmp")
	// Servers that share a directory for temporary tables meet each other's.
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return nil, err
	}
	install := exec.Command(mariaDBTool("mariadb-install-db"), "--no-defaults", "--datadir="+data, "--tmpdir="+scratch,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--user="+me.Username,
		"--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=8M")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
	}
	args := []string{
		"--no-defaults", "--datadir=" + data, "--tmpdir=" + scratch, "--user=" + me.Username, "--port=" + strconv.Itoa(port),
		"--bind-address=127.0.0.1", "--socket=" + filepath.Join(dir, "s"), "--pid-file=" + filepath.Join(dir, "pid"),
		"--innodb-flush-log-at-trx-commit=2", "--innodb-log-file-size=32M", "--skip-log-bin", "--max-connections=200",
		"--character-set-server=utf8mb4",
	}
	return &process{path: mariaDBTool("mariadbd"), args: args, dir: dir}, nil
}
