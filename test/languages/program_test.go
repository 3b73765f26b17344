package languages

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// program is a running program in another language.
type program struct {
	t         *testing.T
	name, log string
	cmd       *exec.Cmd
	ended     chan struct{}
}

// start runs a program until the test ends. The end of its output is shown when the test fails.
func start(t *testing.T, name string, environment, command []string) *program {
	t.Helper()
	p := &program{t: t, name: name, log: filepath.Join(t.TempDir(), "output"), ended: make(chan struct{})}
	output, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	p.cmd = exec.Command(command[0], command[1:]...)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...)
	p.cmd.Stdout, p.cmd.Stderr = output, output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.output()
			t.Logf("the end of the output of %s:\n%s", name, text[max(0, len(text)-6000):])
		}
	})
	return p
}

// kill ends the program as a power cut would.
func (p *program) kill() {
	_ = p.cmd.Process.Kill() // the program may have ended
	<-p.ended
}

// says waits until the program has written a text.
func (p *program) says(text string) {
	p.t.Helper()
	servers.Eventually(p.t, time.Minute, p.name+" says "+text, func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("%s has ended", p.name)
		default:
		}
		return strings.Contains(p.output(), text)
	})
}

func (p *program) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
