// Package servers starts private Redis, RabbitMQ, PostgreSQL and MariaDB servers for tests, on loopback, and stops
// them again.
//
// Each server has its own ports and its own directory and dies with the test process, however the process ends.
// Nothing here leaves a goroutine behind while a server runs, so tests may look for leaks of their own. A missing
// server program skips the test with a reason, and fails the test where CI=true.
//
// TEST_SERVERS=newest starts a newer release of Redis (or Valkey) and RabbitMQ, which
// scripts/install-newer-servers.sh has unpacked beside the system's own.
package servers

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// leastPatience is the least wait of Eventually: a machine that stands still for half a minute fails no test.
const leastPatience = time.Minute

// Eventually polls cond until cond holds. When cond does not hold within that time, or within a minute if a minute is
// longer, the test fails and names the condition. cond runs on the test's goroutine, so cond may end the test itself.
func Eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	within = max(within, leastPatience)
	if err := poll(within, func() (bool, error) { return cond(), nil }); err != nil {
		t.Fatalf("not within %v: %s", within, what)
	}
}

// Tool finds an installed program, such as redis-cli, and returns its path. Where the program is missing the test is
// skipped, or fails when CI=true.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, fmt.Sprintf("%s is not installed; scripts/install-test-servers.sh installs it", name))
	}
	return path
}

// Missing ends the test for want of a program: a laptop may do without it, CI may not.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// poll calls cond every few milliseconds until cond holds or fails; at the end of the time poll returns errTimeUp.
func poll(within time.Duration, cond func() (bool, error)) error {
	deadline := time.Now().Add(within)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		if ok, err := cond(); ok || err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return errTimeUp
		}
		time.Sleep(pause)
	}
}

// Ports are picked below the range of outgoing connections, so that a stopped server finds its port free on its
// restart.
const lowestPort, highestPort = 12000, 31999

// freePorts returns n different ports of 127.0.0.1 without a listener, which no test of this machine gets again while
// this process lives: the port of a stopped server, or of a server before its start, looks free and is not.
func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		if tries > 1000 {
			return nil, fmt.Errorf("no %d free ports between %d and %d", n, lowestPort, highestPort)
		}
		if port := lowestPort + rand.IntN(highestPort-lowestPort+1); takePort(port) {
			ports = append(ports, port)
		}
	}
	return ports, nil
}

// takePort says whether a port was free, and marks the port as taken by holding the port for UDP, which no server of
// the tests uses. The kernel frees the mark with this process, in any case.
func takePort(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = listener.Close()
	mark, err := net.ListenPacket("udp", loopback(port))
	if err != nil {
		return false
	}
	taken.Store(port, mark) // or the garbage collector would close it
	return true
}

// taken holds the marks of the handed-out ports.
var taken sync.Map

func loopback(port int) string {
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// listening says whether a server accepts connections there.
func listening(port int) bool {
	conn, err := net.DialTimeout("tcp", loopback(port), time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
