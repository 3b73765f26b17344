package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// sqlStartTimeout is long for servers that take a second, because tests share a few cores with each other.
const sqlStartTimeout = 60 * time.Second

// SQLServer is a database server of this process. Its methods are for the test's own goroutine.
type SQLServer struct {
	kind *sqlKind
	dir  string
	port int
	proc *process
}

// sqlKind holds the differences between the database servers.
type sqlKind struct {
	driver string
	// dsn names a database of a server; the empty one is where databases are made.
	dsn func(port int, database string) string
	// drop removes a database even while clients are connected.
	drop string
	// halt stops the server at once, and lets it tell its children.
	halt syscall.Signal
	// launch makes the data in dir and returns the server's process, not yet started.
	launch func(dir string, port int) (*process, error)
}

// Database is an empty database of a test's own.
type Database struct {
	// Driver and DSN are the arguments of sql.Open. The test imports the driver.
	Driver, DSN string
	// Server is the database's server.
	Server *SQLServer
}

// URL is how programs name the database: postgres://USER@HOST/NAME or mariadb://USER@HOST/NAME.
func (d *Database) URL() string {
	if d.Driver != "mysql" {
		return d.DSN
	}
	return "mariadb://" + strings.NewReplacer("tcp(", "", ")", "").Replace(d.DSN)
}

// database makes a database on the server, which is dropped when the test ends.
func (s *SQLServer) database(t testing.TB) *Database {
	t.Helper()
	name := "test_" + strings.ToLower(rand.Text()[:12])
	if err := s.exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.exec(fmt.Sprintf(s.kind.drop, name)) })
	return &Database{Driver: s.kind.driver, DSN: s.kind.dsn(s.port, name), Server: s}
}

// exec runs a statement where databases are made.
func (s *SQLServer) exec(statement string) error {
	db, err := sql.Open(s.kind.driver, s.kind.dsn(s.port, ""))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// start runs the server and waits for an answer. A killed server may hold its data for a moment, so the new server is
// started again until it stays.
func (s *SQLServer) start() error {
	err := poll(sqlStartTimeout, func() (bool, error) {
		if !s.proc.running() {
			if err := s.proc.start(); err != nil {
				return false, err
			}
		}
		return s.exec("SELECT 1") == nil, nil
	})
	if err != nil {
		_ = s.proc.end(syscall.SIGKILL)
		return fmt.Errorf("%s on port %d: %w\n%s", s.proc.path, s.port, err, s.proc.output())
	}
	return nil
}

// Kill ends the server with SIGKILL and returns when it is gone.
func (s *SQLServer) Kill(t testing.TB) {
	t.Helper()
	if err := s.proc.end(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// Start runs the server again after Kill, on the same port and data, and returns when it answers.
func (s *SQLServer) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Pid is the server's process id; 0 while the server does not run.
func (s *SQLServer) Pid() int { return s.proc.number() }

// close stops the server and removes its files.
func (s *SQLServer) close() {
	_ = s.proc.end(s.kind.halt)
	_ = os.RemoveAll(s.dir)
}

// launchSQL starts a server with data of its own.
func launchSQL(kind *sqlKind) (*SQLServer, error) {
	dir, err := os.MkdirTemp("", "msghandler-"+kind.driver+"-")
	if err != nil {
		return nil, err
	}
	s := &SQLServer{kind: kind, dir: dir}
	ports, err := freePorts(1)
	if err == nil {
		s.port = ports[0]
		s.proc, err = kind.launch(dir, s.port)
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// sharedSQL holds the servers of this process, each started at the first need.
var sharedSQL struct {
	sync.Mutex
	servers map[*sqlKind]*SQLServer
}

func sharedServer(t testing.TB, kind *sqlKind) *SQLServer {
	t.Helper()
	sharedSQL.Lock()
	defer sharedSQL.Unlock()
	if s := sharedSQL.servers[kind]; s != nil {
		return s
	}
	s, err := launchSQL(kind)
	if err != nil {
		t.Fatal(err)
	}
	if sharedSQL.servers == nil {
		sharedSQL.servers = make(map[*sqlKind]*SQLServer)
	}
	sharedSQL.servers[kind] = s
	return s
}

// stopSQL stops the servers of this process.
func stopSQL() {
	sharedSQL.Lock()
	defer sharedSQL.Unlock()
	for kind, s := range sharedSQL.servers {
		s.close()
		delete(sharedSQL.servers, kind)
	}
}

// private starts a server of the test's own, to be hurt, and stops it when the test ends.
func private(t testing.TB, kind *sqlKind) *Database {
	t.Helper()
	s, err := launchSQL(kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s.database(t)
}

// newestTool finds a program in the PATH or, the newest first, in the directories where distributions hide it.
func newestTool(name string, hidden ...string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, pattern := range hidden {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	return ""
}
