package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/programs"
)

// walk types commands of a page.
type walk struct {
	w *world
	// words are the page's addresses and files, each before that of the test.
	words []string
	// programs are those of the page that are the test itself, such as the service manager. They return what they print.
	programs map[string]func(args []string) string
}

// pageBlocks are the commands of a page that a test types.
func pageBlocks(t *testing.T, page, test string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	must.Succeed(t, err)
	for _, block := range strings.Split(string(text), "\n```sh test="+test+"\n")[1:] {
		commands, _, _ := strings.Cut(block, "\n```")
		blocks = append(blocks, commands)
	}
	return blocks
}

// demandCommands fails where a page has lost a word of the commands that a row types.
func demandCommands(t *testing.T, page string, words ...string) {
	t.Helper()
	commands := strings.Join(pageBlocks(t, page, t.Name()), "\n")
	for _, word := range words {
		if !strings.Contains(commands, word) {
			t.Errorf("the commands of %s lack %q:\n%s", page, word, commands)
		}
	}
}

// call is a command that bash leaves to the test.
type call struct {
	program string
	args    []string
	answer  chan string
}

// handProgram is a program that hands its arguments to the test, and prints the answer.
const handProgram = `#!/bin/sh
for a; do shift; set -- "$@" --data-urlencode "a=$a"; done
exec curl -sS --fail-with-body "%s/%s" "$@"
`

// types runs the commands in one shell, and ends the test at the first that fails.
func (k walk) types(commands string) {
	k.w.t.Helper()
	calls, ended := make(chan call), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm() // a request without arguments has no form
		c := call{strings.TrimPrefix(r.URL.Path, "/"), r.Form["a"], make(chan string, 1)}
		select {
		case calls <- c:
		case <-ended:
			return
		}
		select {
		case printed := <-c.answer:
			_, _ = io.WriteString(out, printed)
		case <-ended:
		}
	}))
	defer server.Close()
	defer close(ended)
	dir := k.w.t.TempDir()
	for name := range k.programs {
		text := fmt.Sprintf(handProgram, server.URL, name)
		must.Succeed(k.w.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	ctx, cancel := context.WithTimeout(k.w.t.Context(), 2*patience)
	defer cancel()
	bash := exec.CommandContext(ctx, "bash", "-euxc", strings.NewReplacer(k.words...).Replace(commands))
	bash.Dir = dir
	bash.Env = append(os.Environ(), "PATH="+dir+":"+programs.Directory()+":"+os.Getenv("PATH"))
	done := make(chan error, 1)
	var out []byte
	go func() {
		var err error
		out, err = bash.CombinedOutput()
		done <- err
	}()
	for {
		select {
		case c := <-calls: // on the test's goroutine, which alone may end the test
			c.answer <- k.programs[c.program](c.args)
		case err := <-done:
			k.w.t.Logf("typed from the page:\n%s", out)
			if err != nil {
				k.w.t.Fatalf("the commands of the page: %v\n%s", err, k.w.tails())
			}
			return
		}
	}
}

// units are services that a service manager starts and stops by name.
type units struct {
	t *testing.T
	// starts has how to start a unit, and each running unit how it stops.
	starts  func(unit string) (stop func())
	running map[string]func()
}

// systemctl is the service manager.
func (u units) systemctl(args []string) string {
	u.t.Helper()
	for _, unit := range args[1:] {
		switch stop, runs := u.running[unit]; {
		case args[0] == "start" && !runs:
			u.running[unit] = u.starts(unit)
		case args[0] == "stop" && runs:
			stop()
			delete(u.running, unit)
		default:
			u.t.Fatalf("systemctl %s: the unit %s runs: %t", strings.Join(args, " "), unit, runs)
		}
	}
	return ""
}
