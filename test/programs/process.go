package programs

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// patience is how long the end of a process may take that was told to end.
const patience = 2 * time.Minute

// Process is a running program.
type Process struct {
	Cmd *exec.Cmd
	// Log is the file of its output.
	Log string
	// Done is closed when the process has ended. Err says how, from then on.
	Done chan struct{}
	Err  error
	// T is the test that has started the program.
	T testing.TB
}

// Start runs a program until the test ends. Its output is shown when the test fails.
func Start(t testing.TB, name string, env []string, args ...string) *Process {
	t.Helper()
	return StartCommand(t, env, exec.Command(Path(name), args...))
}

// StartCommand is Start for a command that the caller has prepared.
func StartCommand(t testing.TB, env []string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := Launch(t, env, cmd, "")
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("the end of the output of %s:\n%s", p.Name(), p.Tail())
		}
	})
	return p
}

// Launch runs a command that the caller ends. Its output is appended to a file; an empty name is a file of its own.
func Launch(t testing.TB, env []string, cmd *exec.Cmd, log string) *Process {
	t.Helper()
	p := &Process{T: t, Cmd: cmd, Log: cmp.Or(log, filepath.Join(t.TempDir(), "output")), Done: make(chan struct{})}
	output, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	cmd.Env = environment(t, env)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.Err = cmd.Wait()
		close(p.Done)
	}()
	return p
}

// Name is the program's.
func (p *Process) Name() string { return filepath.Base(p.Cmd.Path) }

// Kill ends the process as a power cut would.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill() // the process may have ended
	<-p.Done
}

// End sends a signal, waits for the end of the process, and returns how the process ended.
func (p *Process) End(signal syscall.Signal) error {
	_ = p.Cmd.Process.Signal(signal) // the process may have ended by itself, as Done says
	select {
	case <-p.Done:
		return p.Err
	case <-time.After(patience):
		_ = p.Cmd.Process.Kill()
		return fmt.Errorf("%s has not ended within %v of %v", p.Name(), patience, signal)
	}
}

// Stop asks the process to stop, and demands an exit in time and with status 0.
func (p *Process) Stop(within time.Duration) {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.T.Fatalf("%s has ended without a request: %v\n%s", p.Name(), err, p.Tail())
	}
	p.Ends(within)
}

// Ends demands that the process ends by itself with exit status 0.
func (p *Process) Ends(within time.Duration) {
	p.T.Helper()
	select {
	case <-p.Done:
		if p.Err != nil {
			p.T.Fatalf("%s: %v\n%s", p.Name(), p.Err, p.Tail())
		}
	case <-time.After(within):
		p.T.Fatalf("%s has not ended within %v\n%s", p.Name(), within, p.Tail())
	}
}

// Says waits until the process has written a text.
func (p *Process) Says(text string, within time.Duration) {
	p.T.Helper()
	servers.Eventually(p.T, within, fmt.Sprintf("%s says %q", p.Name(), text), func() bool { return p.HasSaid(text) })
}

// HasSaid reports whether the process has written the text.
func (p *Process) HasSaid(text string) bool {
	output, err := os.ReadFile(p.Log)
	return err == nil && strings.Contains(string(output), text)
}

// Tail is the end of the output.
func (p *Process) Tail() string {
	output, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	return string(output[max(0, len(output)-most):])
}

// Ready waits until a coordinator is ready at its HTTP address, and no check fails.
func (p *Process) Ready(addr string) {
	p.T.Helper()
	servers.Eventually(p.T, patience, "the coordinator is ready, and no check fails", func() bool {
		select {
		case <-p.Done:
			p.T.Fatalf("the coordinator ended: %v\n%s", p.Err, p.Tail())
		default:
		}
		status, text := Page(addr, "/readyz")
		return status == http.StatusOK && strings.Contains(text, `"degraded": false`)
	})
}

// Page reads a page of a coordinator; the status is 0 when there is no answer.
func Page(addr, path string) (status int, text string) {
	client := http.Client{Timeout: 10 * time.Second} // the coordinator may be stopped
	response, err := client.Get("http://" + addr + path)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(body)
}
