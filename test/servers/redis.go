package servers

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// redisStartTimeout is long for a server that takes 50 ms, because tests share a few cores with each other.
const redisStartTimeout = 60 * time.Second

// RedisServer is a private redis-server. Its methods are for the test's own goroutine.
type RedisServer struct {
	// Addr is the server's host:port; it stays the same after a restart.
	Addr string

	t    testing.TB
	port int
	proc *process
}

// Redis starts a private redis-server with an append-only file and debug commands, and stops it when the test ends.
// args are added to its command line, such as "--maxmemory", "20mb".
func Redis(t testing.TB, args ...string) *RedisServer {
	t.Helper()
	return startedRedis(t, chosenRelease(t), args)
}

// RedisOf does the same with a server of that release: oldest, trixie or newest.
func RedisOf(t testing.TB, name string, args ...string) *RedisServer {
	t.Helper()
	return startedRedis(t, releaseOf(t, name), args)
}

func startedRedis(t testing.TB, release release, args []string) *RedisServer {
	t.Helper()
	path := redisTool(t, release, "server")
	r := &RedisServer{t: t}
	var err error
	for range 3 { // Another process may take the port between the choice and the start.
		if r.port, r.proc, err = launchRedis(release, path, t.TempDir(), args); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Addr = loopback(r.port)
	t.Cleanup(func() { r.end(syscall.SIGKILL) })
	return r
}

func launchRedis(release release, path, dir string, args []string) (int, *process, error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, nil, err
	}
	command := []string{
		"--port", strconv.Itoa(ports[0]), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes",
		"--enable-debug-command", "local",
	}
	// FillDisk's limit is to be an error for Redis, not its end; a child inherits ignored signals.
	signal.Ignore(syscall.SIGXFSZ)
	proc := &process{path: path, args: append(command, args...), release: release, dir: dir}
	return ports[0], proc, startRedis(proc, ports[0])
}

// startRedis starts the server and waits until the server serves its data.
func startRedis(proc *process, port int) error {
	if err := proc.start(); err != nil {
		return err
	}
	err := poll(redisStartTimeout, func() (bool, error) {
		if !proc.running() {
			return false, fmt.Errorf("redis-server ended:\n%s", proc.output())
		}
		return answersPing(port), nil
	})
	if err == nil {
		return nil
	}
	_ = proc.end(syscall.SIGKILL)
	return fmt.Errorf("redis-server on port %d: %w\n%s", port, err, proc.output())
}

// answersPing is true once the server has loaded its data; before, the server answers with LOADING.
func answersPing(port int) bool {
	conn, err := net.DialTimeout("tcp", loopback(port), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	// A server that wants a password is up as well.
	return err == nil && (strings.HasPrefix(line, "+PONG") || strings.HasPrefix(line, "-NOAUTH"))
}

// URL is redis://HOST:PORT/0.
func (r *RedisServer) URL() string {
	return "redis://" + r.Addr + "/0"
}

// Kill ends the server with SIGKILL and returns when the server is gone.
func (r *RedisServer) Kill() {
	r.t.Helper()
	r.end(syscall.SIGKILL)
}

// Stop ends the server with SIGTERM and returns when the server is gone.
func (r *RedisServer) Stop() {
	r.t.Helper()
	r.end(syscall.SIGTERM)
}

// Freeze stops the process without ending the process (SIGSTOP), and Thaw resumes the process. Bytes from clients
// wait meanwhile.
func (r *RedisServer) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (r *RedisServer) Thaw() { r.signal(syscall.SIGCONT) }

func (r *RedisServer) signal(signal syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(r.Pid(), signal); err != nil {
		r.t.Fatal(err)
	}
}

func (r *RedisServer) end(signal syscall.Signal) {
	r.t.Helper()
	if err := r.proc.end(signal); err != nil {
		r.t.Error(err)
	}
}

// Start runs the server again after Kill or Stop, on the same port and data, and returns when the server serves.
func (r *RedisServer) Start() {
	r.t.Helper()
	if err := startRedis(r.proc, r.port); err != nil {
		r.t.Fatal(err)
	}
}

// Copy copies the append-only files as they are, and returns the directory of the copy. All writes acknowledged
// before are in the copy: while its disk is slow, a Redis that syncs once a second acknowledges writes that are not
// even in its file.
func (r *RedisServer) Copy() (earlier string) {
	r.t.Helper()
	Eventually(r.t, redisStartTimeout, "all is written", func() bool {
		return strings.Contains(r.CLI("INFO", "persistence"), "aof_buffer_length:0")
	})
	earlier = r.t.TempDir()
	r.copyFiles(r.appendOnly(), earlier)
	return earlier
}

// PutBack kills the server and starts it on files from an earlier time, as after a power cut that took the last
// writes.
func (r *RedisServer) PutBack(earlier string) {
	r.t.Helper()
	r.Kill()
	if err := os.RemoveAll(r.appendOnly()); err != nil {
		r.t.Fatal(err)
	}
	r.copyFiles(earlier, r.appendOnly())
	r.Start()
}

func (r *RedisServer) copyFiles(from, to string) {
	r.t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		r.t.Fatal(err)
	}
}

// appendOnly is where its append-only files are.
func (r *RedisServer) appendOnly() string {
	return filepath.Join(r.proc.dir, "appendonlydir")
}

// FillDisk makes every write to the append-only file fail, as on a full disk, until FreeDisk: the file may not grow.
func (r *RedisServer) FillDisk() {
	r.t.Helper()
	files, err := filepath.Glob(filepath.Join(r.appendOnly(), "*.incr.aof"))
	if err != nil || len(files) != 1 {
		r.t.Fatalf("the append-only files of Redis are %q, %v, want a single file", files, err)
	}
	file, err := os.Stat(files[0])
	if err != nil {
		r.t.Fatal(err)
	}
	r.limitFiles(strconv.FormatInt(file.Size(), 10))
}

// FreeDisk undoes FillDisk.
func (r *RedisServer) FreeDisk() {
	r.t.Helper()
	r.limitFiles("unlimited")
}

// limitFiles limits the size of the process's files. The hard limit stays, so that the soft limit can be raised
// again.
func (r *RedisServer) limitFiles(size string) {
	r.t.Helper()
	run(r.t, Tool(r.t, "prlimit"), "--pid", strconv.Itoa(r.Pid()), "--fsize="+size+":")
}

// Pid is the server's process id, for signals such as SIGSTOP; 0 while the server does not run.
func (r *RedisServer) Pid() int {
	return r.proc.number()
}

// CLI runs redis-cli against the server and returns the output, without the last line end. An error of the command
// ends the test.
func (r *RedisServer) CLI(args ...string) string {
	r.t.Helper()
	return redisCLI(r.t, r.port, args...)
}

// IsMaster says whether the server reports itself as a master. A server without an answer is no master: a Sentinel
// that promotes a replica closes its connections.
func (r *RedisServer) IsMaster() bool {
	r.t.Helper()
	role, err := tryCLI(r.t, r.port, "ROLE")
	return err == nil && strings.HasPrefix(role, "master")
}

// Replication is the server's report about its replication; nothing when there is no answer, because a Sentinel that
// demotes a master closes its connections too.
func (r *RedisServer) Replication() string {
	r.t.Helper()
	info, err := tryCLI(r.t, r.port, "INFO", "replication")
	if err != nil {
		return ""
	}
	return info
}

func redisCLI(t testing.TB, port int, args ...string) string {
	t.Helper()
	out, err := tryCLI(t, port, args...)
	if err != nil {
		t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// redisTool finds redis-server or redis-cli, or its replacement in this release; suffix is server or cli.
func redisTool(t testing.TB, release release, suffix string) string {
	t.Helper()
	name := "redis-" + suffix
	if release.valkey {
		name = "valkey-" + suffix
	}
	path, err := release.lookPath(name)
	if err != nil {
		Missing(t, fmt.Sprintf("%s is not installed; scripts/install-test-servers.sh installs it", name))
	}
	return path
}

// redisCommand is how redis-cli of this release is run with args.
func redisCommand(t testing.TB, args []string) (string, []string) {
	t.Helper()
	release := chosenRelease(t)
	path := redisTool(t, release, "cli")
	return release.command(path, args)
}

func tryCLI(t testing.TB, port int, args ...string) (string, error) {
	t.Helper()
	path, args := redisCommand(t, append([]string{"-e", "-h", "127.0.0.1", "-p", strconv.Itoa(port)}, args...))
	out, err := exec.Command(path, args...).CombinedOutput()
	return strings.TrimRight(string(out), "\n"), err
}
