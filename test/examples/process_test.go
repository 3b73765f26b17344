package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// process is a program that is killed and started again.
type process struct {
	t    *testing.T
	name string
	args []string
	env  []string
	log  string
	cmd  *exec.Cmd
}

// start runs a program until the test ends. Its output is shown when the test fails.
func start(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	p := &process{
		t: t, name: name, args: args, log: filepath.Join(t.TempDir(), name),
		env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, env...),
	}
	p.start()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			output, _ := os.ReadFile(p.log)
			t.Logf("the end of the output of %s:\n%s", name, output[max(0, len(output)-4000):])
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer output.Close()
	p.cmd = exec.Command(filepath.Join(binaries, p.name), p.args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.env, output, output
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill ends the process as a power cut would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // the process may have ended
	_ = p.cmd.Wait()         // the error is that of the kill
}
