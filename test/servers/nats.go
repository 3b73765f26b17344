package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// NATSChild is the environment variable by which a test's program learns that it is to be a NATS server, with the
// server's configuration file. Package natsserver runs the server.
const NATSChild = "TEST_NATS_SERVER"

// natsStartTimeout is long for a server that takes 50 ms, because tests share a few cores with each other.
const natsStartTimeout = 60 * time.Second

// NATSServer is a private nats-server with JetStream, in a process of its own. Its methods are for the test's own
// goroutine.
type NATSServer struct {
	// URL is nats://HOST:PORT, which stays the same after a restart.
	URL string

	t    testing.TB
	port int
	proc *process
	// config is the configuration file, and base its text without the part that a test may change.
	config, base string
}

// NATS starts one server, and kills the server when the test ends. The settings are added to the configuration file.
// The test's TestMain calls natsserver.Child first.
func NATS(t testing.TB, settings ...string) *NATSServer {
	t.Helper()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	s := newNATS(t, ports[0], "n0", "", settings)
	s.Start()
	return s
}

// NATSCluster starts the servers of one cluster.
func NATSCluster(t testing.TB, n int, settings ...string) []*NATSServer {
	t.Helper()
	ports, err := freePorts(2 * n)
	if err != nil {
		t.Fatal(err)
	}
	routes := make([]string, n)
	for i := range routes {
		routes[i] = "nats://" + loopback(ports[n+i])
	}
	cluster := make([]*NATSServer, n)
	for i := range cluster {
		text := fmt.Sprintf("cluster { name: tests, listen: %q, routes: [%s] }\n", loopback(ports[n+i]),
			strings.Join(routes, ", "))
		cluster[i] = newNATS(t, ports[i], fmt.Sprintf("n%d", i), text, settings)
		cluster[i].Start()
	}
	return cluster
}

func newNATS(t testing.TB, port int, name, cluster string, settings []string) *NATSServer {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &NATSServer{URL: "nats://" + loopback(port), t: t, port: port, config: filepath.Join(dir, "nats.conf")}
	s.base = fmt.Sprintf("server_name: %s\nlisten: %q\njetstream { store_dir: %q }\n%s",
		name, loopback(port), filepath.Join(dir, "data"), cluster)
	s.write(settings)
	s.proc = &process{path: program, dir: dir, env: append(os.Environ(), NATSChild+"="+s.config)}
	t.Cleanup(func() { s.end(syscall.SIGKILL) })
	return s
}

func (s *NATSServer) write(settings []string) {
	s.t.Helper()
	if err := os.WriteFile(s.config, []byte(s.base+strings.Join(settings, "\n")+"\n"), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// Start starts a server that was killed or stopped, with its data.
func (s *NATSServer) Start() {
	s.t.Helper()
	err := s.proc.start()
	if err == nil {
		err = poll(natsStartTimeout, func() (bool, error) {
			if !s.proc.running() {
				return false, fmt.Errorf("nats-server ended")
			}
			return listening(s.port), nil
		})
	}
	if err != nil {
		s.t.Fatalf("nats-server on port %d: %v; TestMain must call natsserver.Child\n%s", s.port, err, s.proc.output())
	}
}

// NATSReloaded is what a server prints when it has reloaded its configuration.
const NATSReloaded = "the configuration was reloaded"

// Configure replaces the settings that were added to the configuration file, and returns when the server has reloaded
// the file.
func (s *NATSServer) Configure(settings ...string) {
	s.t.Helper()
	s.write(settings)
	before := s.reloads()
	s.signal(syscall.SIGHUP)
	if err := poll(natsStartTimeout, func() (bool, error) { return s.reloads() > before, nil }); err != nil {
		s.t.Fatalf("nats-server on port %d has not reloaded: %v\n%s", s.port, err, s.proc.output())
	}
}

// reloads is how often the server has reloaded its configuration.
func (s *NATSServer) reloads() int {
	printed, err := os.ReadFile(s.proc.outputPath())
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(printed), NATSReloaded)
}

// Kill ends the server with SIGKILL and returns when the server is gone.
func (s *NATSServer) Kill() {
	s.t.Helper()
	s.end(syscall.SIGKILL)
}

// Freeze stops the process without ending it (SIGSTOP), and returns when the process stands still. Thaw resumes
// the process.
func (s *NATSServer) Freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(s.proc.number(), &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			s.t.Fatalf("nats-server does not stand still: %v, %v", status, err)
		}
		return
	}
}

// Thaw resumes a frozen process.
func (s *NATSServer) Thaw() { s.signal(syscall.SIGCONT) }

// DisableJetStream ends JetStream in the running server, and EnableJetStream starts JetStream again with its data.
func (s *NATSServer) DisableJetStream() { s.signal(syscall.SIGUSR1) }

// EnableJetStream undoes DisableJetStream.
func (s *NATSServer) EnableJetStream() { s.signal(syscall.SIGUSR2) }

// Log is the end of the server's log.
func (s *NATSServer) Log() string { return s.proc.output() }

func (s *NATSServer) signal(signal syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.proc.number(), signal); err != nil {
		s.t.Fatalf("signal %v to nats-server: %v", signal, err)
	}
}

func (s *NATSServer) end(signal syscall.Signal) {
	s.t.Helper()
	if err := s.proc.end(signal); err != nil {
		s.t.Error(err)
	}
}
