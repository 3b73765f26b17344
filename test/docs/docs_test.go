// Package docs tests the code blocks and the commands of every page: a block is compiled, parsed or run, as the word
// after its three backticks says. CONTRIBUTING.md explains how to write a block.
package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// root is the repository.
const root = "../.."

// TestMain is each program of the repository too, under the program's name: see programs_test.go.
func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	if run, is := programs[filepath.Base(os.Args[0])]; is {
		os.Exit(run(os.Args[1:]))
	}
	os.Exit(servers.Stopping(m).Run())
}

// pages are the pages of the repository, as paths within the repository.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := within("*.md")
	if err != nil || len(found) < 10 {
		t.Fatal(found, err)
	}
	// CHANGELOG.md tells what was, and a test's own data are no pages.
	return slices.DeleteFunc(found, func(path string) bool {
		return path == "CHANGELOG.md" || strings.Contains(path, "/testdata/")
	})
}

// within lists the files of the repository that a pattern of git matches, new files too.
func within(pattern string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	listed := slices.Compact(strings.Fields(string(out)))
	return slices.DeleteFunc(listed, func(path string) bool {
		_, err := os.Stat(filepath.Join(root, path))
		return err != nil
	}), nil
}

func TestBlocksHold(t *testing.T) {
	t.Parallel()
	for _, path := range pages(t) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			for _, problem := range problemsOf(t, readPage(t, path)) {
				t.Error(problem)
			}
		})
	}
}

// problemsOf are the problems of a page's blocks and commands.
func problemsOf(t *testing.T, p *page) []problem {
	t.Helper()
	problems := p.problems
	for _, b := range p.blocks {
		problems = append(problems, check(t, b)...)
	}
	return slices.Concat(problems, checkSpans(t, p), checkExpressions(t, p))
}

// problem is a mistake on a page, and the action.
type problem struct {
	page string
	line int
	what string
}

func (p problem) String() string { return fmt.Sprintf("%s:%d: %s", p.page, p.line, p.what) }
