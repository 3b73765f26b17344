package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

var errTimeUp = errors.New("time is up")

// stopTimeout is how long a server may take to stop by itself before it is killed; RabbitMQ takes some seconds.
const stopTimeout = 30 * time.Second

// process is one child in its own process group, which the kernel kills when this process dies. Its end is polled, so
// no goroutine waits for the child. Its methods are safe for concurrent use.
type process struct {
	path string
	args []string
	dir  string
	// release is where path is found; the zero value is the system itself.
	release release
	// env is the whole environment; nil means this process's own.
	env []string
	// as is the user of the child; nil means this process's own.
	as *syscall.Credential

	mu  sync.Mutex
	pid int // 0 while the child does not run
}

// start runs the child; its output is appended to DIR/NAME.out.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs() {
		return fmt.Errorf("%s runs already, pid %d", p.path, p.pid)
	}
	out, err := os.OpenFile(p.outputPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the output of %s: %w", p.path, err)
	}
	defer out.Close()
	path, args := p.release.command(p.path, p.args)
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = p.dir, p.env, out, out
	cmd.SysProcAttr = childAttributes()
	cmd.SysProcAttr.Credential = p.as
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.path, err)
	}
	p.pid = cmd.Process.Pid
	return cmd.Process.Release()
}

// running says whether the child has been started and has not ended.
func (p *process) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs()
}

// runs collects the exit of a process that has ended; the caller holds the lock.
func (p *process) runs() bool {
	if p.pid == 0 {
		return false
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.pid, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || pid == p.pid:
			p.pid = 0
			return false
		}
		return true
	}
}

// end sends the signal to the process and waits until the process has ended; past stopTimeout the process is killed,
// with an error.
func (p *process) end(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runs() {
		return nil
	}
	pid := p.pid
	_ = syscall.Kill(pid, signal)
	err := poll(stopTimeout, func() (bool, error) { return !p.runs(), nil })
	// Its own children are gone with the process, or go now.
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	if err == nil {
		return nil
	}
	if again := poll(stopTimeout, func() (bool, error) { return !p.runs(), nil }); again != nil {
		return fmt.Errorf("%s, pid %d, does not end even when killed", p.path, pid)
	}
	return fmt.Errorf("%s, pid %d, did not stop within %v of signal %v and was killed", p.path, pid, stopTimeout, signal)
}

// number is the process id, 0 while the child does not run.
func (p *process) number() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *process) outputPath() string {
	return filepath.Join(p.dir, filepath.Base(p.path)+".out")
}

// output is the end of the child's output, for failure messages.
func (p *process) output() string {
	return tail(p.outputPath())
}

// tail is the end of a file, or why there is none.
func tail(path string) string {
	const enough = 4000
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-enough):])
}
