package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// process is one of our programs, running.
type process struct {
	t    *testing.T
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start runs a program until the test ends. Its output is shown when the test fails.
func start(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	return startPrepared(t, name, env, func(*exec.Cmd) {}, args...)
}

// startPrepared is start with a last change to the command before the start.
func startPrepared(t *testing.T, name string, env []string, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	prepare(cmd)
	return startCommand(t, name, env, cmd)
}

// startWithFiles runs a program with a limit of open files and connections, as with ulimit -n.
func startWithFiles(t *testing.T, files int, name string, env []string, args ...string) *process {
	t.Helper()
	script := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files)
	return startCommand(t, name, env, exec.Command("/bin/sh", append([]string{
		"-c", script, filepath.Join(binaries, name),
	}, args...)...))
}

func startCommand(t *testing.T, name string, env []string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, name: name, log: filepath.Join(t.TempDir(), "output"), done: make(chan struct{})}
	output, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	p.cmd = cmd
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the end of the output of %s:\n%s", name, p.tail())
		}
	})
	return p
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the process may have ended
	<-p.done
}

// stop asks the process to stop, and demands an exit in time and with status 0.
func (p *process) stop(within time.Duration) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatalf("%s has ended before it was asked to: %v\n%s", p.name, err, p.tail())
	}
	p.ends(within)
}

// ends demands that the process ends by itself with exit status 0.
func (p *process) ends(within time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
		if p.err != nil {
			p.t.Fatalf("%s: %v\n%s", p.name, p.err, p.tail())
		}
	case <-time.After(within):
		p.t.Fatalf("%s has not ended within %v\n%s", p.name, within, p.tail())
	}
}

// says waits until the process has written a text.
func (p *process) says(text string, within time.Duration) {
	p.t.Helper()
	servers.Eventually(p.t, within, fmt.Sprintf("%s says %q", p.name, text), func() bool { return p.hasSaid(text) })
}

// hasSaid reports whether the process has printed the text.
func (p *process) hasSaid(text string) bool {
	output, err := os.ReadFile(p.log)
	return err == nil && strings.Contains(string(output), text)
}

func (p *process) tail() string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	const most = 6000
	if len(output) > most {
		output = output[len(output)-most:]
	}
	return string(output)
}

// run runs msghandler's command line to its end and returns its output and its exit status.
func run(t *testing.T, env []string, args ...string) (output string, status int) {
	t.Helper()
	return runProgram(t, "msghandler", env, args...)
}

// runProgram runs a program until its end.
func runProgram(t *testing.T, name string, env []string, args ...string) (output string, status int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(binaries, name), args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
