package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// hungUp are the services that a SIGHUP may reach, each with its output once it runs.
func hungUp(t *testing.T) map[string]struct {
	env, args []string
	runs      string
} {
	t.Helper()
	// A child inherits an ignored SIGHUP, such as that of nohup, from this process, but no handler.
	handled := make(chan os.Signal, 1)
	signal.Notify(handled, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(handled) })
	addresses := servers.Addresses(t, 5)
	amqp := servers.RabbitMQ(t).URL
	dir := t.TempDir()
	return map[string]struct {
		env, args []string
		runs      string
	}{
		"msghandler": {
			[]string{
				"MSGHANDLER_GRPC_ADDR=" + addresses[0], "MSGHANDLER_HTTP_ADDR=" + addresses[1],
				"MSGHANDLER_REDIS_URL=" + embeddedtest.Redis(t), "MSGHANDLER_AMQP_URL=" + amqp,
			},
			[]string{"serve"},
			"msg=serving",
		},
		"consumer-demo": {
			nil, []string{"--amqp", amqp, "--database", "sqlite:" + filepath.Join(dir, "shop.db")}, "waiting for orders",
		},
		"producer-demo": {
			nil, []string{
				"--coordinator", addresses[2], "--amqp", amqp, "--listen", addresses[3], "--http", addresses[4],
				"--coordinator-token-file", tokenFile(t, shopToken),
				"--database", "sqlite:" + filepath.Join(dir, "shop.db"),
			}, "taking orders",
		},
	}
}

// onTerminal starts a program on a terminal of its own and returns the other end, which closes the terminal.
func onTerminal(t *testing.T, name string, env []string, args ...string) (*programs.Process, *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	var number, locked int32
	for request, value := range map[uintptr]*int32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value)))
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	cmd := exec.Command(programs.Path(name), args...)
	cmd.Stdin, cmd.SysProcAttr = terminal, &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return programs.StartCommand(t, env, cmd), master
}

func TestAClosedTerminalStopsCleanly(t *testing.T) {
	t.Parallel()
	for name, service := range hungUp(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, terminal := onTerminal(t, name, service.env, service.args...)
			p.Says(service.runs, 30*time.Second)
			if err := terminal.Close(); err != nil {
				t.Fatal(err)
			}
			p.Ends(25 * time.Second)
			if name == "msghandler" {
				p.Says("msg=stopped", time.Second)
			}
		})
	}
}

// A daemon without a terminal, or with an open terminal, gets SIGHUP to reload.
func TestHangupLeavesTheCoordinatorServing(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, []string, []string) *programs.Process{
		"daemon": func(t *testing.T, env, args []string) *programs.Process {
			cmd := exec.Command(programs.Path("msghandler"), args...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			return programs.StartCommand(t, env, cmd)
		},
		"foreground": func(t *testing.T, env, args []string) *programs.Process {
			p, _ := onTerminal(t, "msghandler", env, args...)
			return p
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := hungUp(t)["msghandler"]
			p := begin(t, service.env, service.args)
			p.Says(service.runs, 30*time.Second)
			for range 2 {
				if err := p.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
					t.Fatal(err)
				}
			}
			p.Says("nothing has changed", 20*time.Second)
			out, status := programs.Run(t, "msghandler", service.env, "stats")
			if status != 0 || !strings.Contains(out, "pending") {
				t.Errorf("stats after SIGHUP: exit status %d\n%s", status, out)
			}
			p.Stop(25 * time.Second)
		})
	}
}

// A process started by nohup outlives its terminal.
func TestHangupIgnoredAtStartStaysIgnored(t *testing.T) {
	t.Parallel()
	for name, service := range hungUp(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := programs.StartCommand(t, service.env, exec.Command("/bin/sh", append([]string{
				"-c", `trap "" HUP; exec "$0" "$@"`, programs.Path(name),
			}, service.args...)...))
			p.Says(service.runs, 30*time.Second)
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			if !ignores(string(status), syscall.SIGHUP) {
				t.Errorf("SIGHUP is not ignored any more:\n%s", status)
			}
			p.Stop(25 * time.Second)
		})
	}
}

// ignores says whether /proc/PID/status lists a signal as ignored.
func ignores(status string, signal syscall.Signal) bool {
	_, after, _ := strings.Cut(status, "SigIgn:")
	var mask uint64
	_, err := fmt.Sscanf(after, "%x", &mask)
	return err == nil && mask&(1<<(signal-1)) != 0
}
