package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Program is the simulation as a program with the overlay.
type Program struct {
	// Path is the file, Dir the directory of its package, in which go test runs it too, and Patience how long a run may
	// take before it counts as hanging.
	Path, Dir string
	Patience  time.Duration
}

// Build builds the tests of a package with the overlay into a directory. changed are more files with other contents, by
// their paths.
func Build(ctx context.Context, dir, pkg string, changed map[string]string) (Program, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return Program{}, err
	}
	overlay, err := Overlay(ctx, dir)
	if err != nil {
		return Program{}, err
	}
	if err := addChanged(overlay, changed); err != nil {
		return Program{}, err
	}
	path := filepath.Join(dir, "simulation.test")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", path, pkg}
	build := exec.CommandContext(ctx, "go", args...)
	if out, err := build.CombinedOutput(); err != nil {
		return Program{}, fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return Program{Path: path, Dir: pkg, Patience: 10 * time.Minute}, nil
}

func addChanged(overlay string, changed map[string]string) error {
	if len(changed) == 0 {
		return nil
	}
	text, err := os.ReadFile(overlay)
	if err != nil {
		return err
	}
	var list struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	for file, with := range changed {
		list.Replace[file] = with
	}
	if text, err = json.Marshal(list); err != nil {
		return err
	}
	return os.WriteFile(overlay, text, 0o600)
}

// Play runs a plan in a process of its own, whose history so cannot change the run. cpu is what the process used. A run
// that hangs or crashes is an outcome with a defect.
func (p Program) Play(ctx context.Context, plan Plan) (o Outcome, cpu time.Duration, err error) {
	text, err := json.Marshal(plan)
	if err != nil {
		return o, 0, err
	}
	limited, cancel := context.WithTimeout(ctx, p.Patience)
	defer cancel()
	run := exec.CommandContext(limited, p.Path, "-test.run=^TestPlan$", "-test.timeout=0", "-plan="+string(text))
	run.Dir = p.Dir
	run.Env = Environment // and nothing else: the environment decides where memory begins
	// The program prints its stacks, and ends.
	run.Cancel, run.WaitDelay = func() error { return run.Process.Signal(syscall.SIGQUIT) }, 10*time.Second
	out, failed := run.CombinedOutput()
	if ctx.Err() != nil {
		return o, 0, ctx.Err()
	}
	if run.ProcessState != nil {
		cpu = run.ProcessState.UserTime() + run.ProcessState.SystemTime()
	}
	_, line, found := bytes.Cut(out, []byte(Prefix))
	if found {
		line, _, _ = bytes.Cut(line, []byte("\n"))
		return o, cpu, json.Unmarshal(line, &o)
	}
	switch {
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		o.Wrong = []string{fmt.Sprintf("HANGS for %v", p.Patience)}
	case failed != nil:
		o.Wrong = []string{"CRASHED " + strings.TrimSpace(failed.Error())}
	default:
		return o, cpu, fmt.Errorf("a run prints no outcome: %s", out)
	}
	const most = 1 << 20 // the stacks of a world
	o.Log = string(out[max(0, len(out)-most):])
	return o, cpu, nil
}
