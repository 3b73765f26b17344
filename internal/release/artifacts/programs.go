package artifacts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/msghandler/msghandler/internal/release/modules"
)

// names are the released programs.
var names = []string{"msghandler", "msghandler-bench", "msghandler-dev"}

// programs builds the programs as users do who type go install: from the modules, so a program knows the version of
// each. The module cache is of this build alone, because the go command never reads a version twice.
func (r *release) programs() error {
	known, err := goEnv("GOMODCACHE", "GOPROXY", "GOSUMDB", "GOCACHE", "GOTOOLCHAIN")
	if err != nil {
		return err
	}
	for _, p := range r.platforms {
		fmt.Fprintf(r.log, "  for %s\n", p)
		flags := "-s -w -X " + modules.Root + "/internal/ground/build.commit=" + r.commit
		args := []string{"install", "-trimpath", "-ldflags", flags}
		for _, name := range names {
			args = append(args, modules.Root+"/cmd/"+name+"@"+r.version)
		}
		cmd := exec.CommandContext(context.Background(), "go", args...)
		cmd.Dir = r.work
		// Nothing of the caller's environment changes what is built.
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + r.work, "GOENV=off", "GOWORK=off", "GOFLAGS=-modcacherw",
			"GOPATH=" + filepath.Join(r.work, p.String()), "GOMODCACHE=" + filepath.Join(r.work, "mod"),
			"GOCACHE=" + known["GOCACHE"], "GOTOOLCHAIN=" + known["GOTOOLCHAIN"],
			"GOSUMDB=" + known["GOSUMDB"], "GONOSUMDB=" + modules.Root,
			"GOPROXY=file://" + r.proxy() + ",file://" + known["GOMODCACHE"] + "/cache/download," + known["GOPROXY"],
			"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch,
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			downloads := regexp.MustCompile(`(?m)^go: downloading .*\n`)
			return fmt.Errorf("for %s: go %s: %w\n%s", p, strings.Join(args, " "), err, downloads.ReplaceAll(out, nil))
		}
	}
	return nil
}

// program is where a built program is. The go command makes a directory for a foreign platform.
func (r *release) program(p platform, name string) string {
	bin := filepath.Join(r.work, p.String(), "bin")
	if p != (platform{runtime.GOOS, runtime.GOARCH}) {
		bin = filepath.Join(bin, p.String())
	}
	return filepath.Join(bin, name)
}

// run runs the built coordinator of this machine, and returns what it prints.
func (r *release) run(args ...string) ([]byte, error) {
	program := r.program(platform{runtime.GOOS, runtime.GOARCH}, "msghandler")
	out, err := exec.CommandContext(context.Background(), program, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("msghandler %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// goEnv are settings of the go command.
func goEnv(keys ...string) (map[string]string, error) {
	out, err := exec.CommandContext(context.Background(), "go", append([]string{"env"}, keys...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := map[string]string{}
	for i, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		values[keys[i]] = line
	}
	return values, nil
}
