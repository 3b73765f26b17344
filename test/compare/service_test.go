package compare

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/msghandler/msghandler/test/compare/load"
)

// service is the service of a system, a process of its own.
type service struct {
	t       testing.TB
	w       *world
	process *exec.Cmd
	input   io.WriteCloser
	events  *bufio.Scanner
	ended   bool
}

// startService starts a service, and feeds it with the numbers of arrived messages.
func (w *world) startService(config load.Config) *service {
	w.t.Helper()
	text, err := json.Marshal(config)
	w.must(err)
	s := &service{t: w.t, w: w, process: exec.Command(w.service, string(text))}
	s.process.Stderr = os.Stderr
	s.input, err = s.process.StdinPipe()
	w.must(err)
	output, err := s.process.StdoutPipe()
	w.must(err)
	s.events = bufio.NewScanner(output)
	w.must(s.process.Start())
	w.t.Cleanup(s.kill)
	w.consumer.feed(s.input)
	s.await(load.StageReady)
	return s
}

// await reads events up to this stage.
func (s *service) await(stage string) load.Event {
	s.t.Helper()
	for s.events.Scan() {
		var event load.Event
		if err := json.Unmarshal(s.events.Bytes(), &event); err != nil {
			s.t.Fatal(err)
		}
		if event.Stage == stage {
			return event
		}
	}
	s.t.Fatalf("the service ended before %q", stage)
	return load.Event{}
}

// result waits for the end of the service.
func (s *service) result() load.Report {
	s.t.Helper()
	report := s.await(load.StageDone).Report
	s.w.consumer.feed(nil)
	_ = s.input.Close()
	s.ended = true
	if err := s.process.Wait(); err != nil {
		s.t.Error(err)
	}
	return *report
}

// stop ends the load, and waits for the end of the service.
func (s *service) stop() load.Report {
	s.t.Helper()
	s.w.consumer.send(load.Stop)
	return s.result()
}

func (s *service) pid() int { return s.process.Process.Pid }

// kill ends the process with SIGKILL, unless it has ended.
func (s *service) kill() {
	if s.ended {
		return
	}
	s.ended = true
	s.w.consumer.feed(nil)
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
}
