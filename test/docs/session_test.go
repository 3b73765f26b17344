package docs

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// slow runs the sessions that take long too: go test ./test/docs -run TestSessionsRun -args -slow
var slow = flag.Bool("slow", false, "run the pages whose blocks have the word slow, too")

// patience bounds a session.
const patience = 4 * time.Minute

// TestSessionsRun runs the blocks "sh run" of each page as a reader would: one shell for the page, in a new directory.
// A session does nothing that the page does not say. The session has a network and processes of its own, so that the
// ports of the pages are free, and so that all processes end with the session.
func TestSessionsRun(t *testing.T) {
	t.Parallel()
	for _, path := range pages(t) {
		for reader, run := range byReader(executed(readPage(t, path))) {
			t.Run(filepath.Join(path, reader), func(t *testing.T) {
				t.Parallel()
				for _, problem := range newSession(t, run).run() {
					t.Error(problem)
				}
			})
		}
	}
}

// byReader are the sessions of blocks: one for each value of the word for, with the blocks that are for all readers.
func byReader(run []*block) map[string][]*block {
	sessions := map[string][]*block{}
	for _, b := range run {
		if b.is("for") {
			sessions[b.words["for"]] = nil
		}
	}
	if len(run) > 0 && len(sessions) == 0 {
		return map[string][]*block{"": run}
	}
	for reader := range sessions {
		for _, b := range run {
			if !b.is("for") || b.words["for"] == reader {
				sessions[reader] = append(sessions[reader], b)
			}
		}
	}
	return sessions
}

// executed are the blocks of a page that run.
func executed(p *page) (run []*block) {
	for _, b := range p.blocks {
		if b.language == "sh" && b.is("run") && (*slow || !b.is("slow")) {
			run = append(run, b)
		}
	}
	return run
}

// session is the run of a page's blocks.
type session struct {
	t      *testing.T
	blocks []*block
	// notes is the directory of the script and of each block's output; work is the reader's directory.
	notes, work string
	// ports is the directory of the bridge to the page's services; see forward_test.go.
	ports string
}

func newSession(t *testing.T, blocks []*block) *session {
	t.Helper()
	s := &session{t: t, blocks: blocks, notes: t.TempDir(), work: t.TempDir(), ports: useServices(t, blocks)}
	s.furnish()
	return s
}

// furnish gives the reader's directory the files of a checkout, with the programs in bin.
func (s *session) furnish() {
	s.t.Helper()
	here, err := filepath.Abs(root)
	if err != nil {
		s.t.Fatal(err)
	}
	tracked, err := within("*")
	if err != nil {
		s.t.Fatal(err)
	}
	bin := installPrograms(s.t)
	installSamples(s.t, bin, s.blocks)
	links := map[string]string{"bin": bin}
	for _, path := range tracked {
		top, _, _ := strings.Cut(path, "/")
		links[top] = filepath.Join(here, top)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(s.work, name)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// run runs the script and returns the problems of the blocks.
func (s *session) run() (problems []problem) {
	s.t.Helper()
	unshare := servers.Tool(s.t, "unshare")
	servers.Tool(s.t, "ip")
	write(s.t, filepath.Join(s.notes, "script"), s.script())
	ctx, stop := context.WithTimeout(s.t.Context(), patience)
	defer stop()
	isolated := []string{"--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if os.Getuid() != 0 {
		isolated = append(isolated, "--map-root-user")
	}
	cmd := exec.CommandContext(ctx, unshare, append(isolated, "bash", filepath.Join(s.notes, "script"))...)
	cmd.Dir = s.work
	cmd.Env = []string{
		"PATH=" + filepath.Join(s.work, "bin") + ":" + os.Getenv("PATH"), "HOME=" + s.work,
		"TMPDIR=" + s.t.TempDir(), "LANG=C.UTF-8",
	}
	out, err := cmd.CombinedOutput()
	last := s.blocks[0]
	for i, b := range s.blocks {
		if _, missing := os.Stat(s.file(i)); missing != nil {
			break
		}
		last = b
		if what := mismatch(b, s.output(i)); what != "" && !b.is("terminal") && err == nil {
			problems = append(problems, b.output.problem(0, what))
		}
	}
	if err != nil {
		problems = append(problems, last.problem(0, fmt.Sprintf("this block fails, or takes more than %v: %v; %s%s", patience,
			err, s.output(slices.Index(s.blocks, last)), out)))
	}
	return problems
}

// script is the script of the session. A block with the word terminal runs in the background, as in a second terminal,
// and the next block begins when the output is as on the page.
func (s *session) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "set -e\nip link set lo up\nread -r < <(forward-ports %s)\n", s.ports)
	for i, block := range s.blocks {
		name := filepath.Join(s.notes, strconv.Itoa(i))
		if !block.is("terminal") {
			fmt.Fprintf(&b, "exec >%s.out 2>&1\n%s", name, block.text())
			continue
		}
		write(s.t, name+".want", wanted(block))
		fmt.Fprintf(&b, "exec >/dev/null\n{\n%s} >%s.out 2>&1 &\nuntil-output %[2]s\n", block.text(), name)
	}
	return b.String()
}

// file is where the output of a block goes.
func (s *session) file(block int) string { return filepath.Join(s.notes, strconv.Itoa(block)+".out") }

// output is the output of a block, or nothing.
func (s *session) output(block int) string {
	data, _ := os.ReadFile(s.file(block))
	return string(data)
}

// wanted is the output that the page shows; anything where the page shows none.
func wanted(b *block) string {
	if b.output == nil || b.output.language != "text" {
		return "...\n"
	}
	return b.output.text()
}

// mismatch says how the output differs from the output on the page.
func mismatch(b *block, output string) string {
	if b.output != nil && b.output.language == "json" {
		return mismatchJSON(b.output.text(), output)
	}
	if want := wanted(b); !pattern(want).MatchString(trimLines(output)) {
		return fmt.Sprintf("the block before prints something else (... on a line stands for anything):\n%s", output)
	}
	return ""
}

// mismatchJSON demands everything of a document that the page shows of the document.
func mismatchJSON(shown, output string) string {
	var want, got any
	if err := errors.Join(json.Unmarshal([]byte(shown), &want), json.Unmarshal([]byte(output), &got)); err != nil {
		return fmt.Sprintf("%v in the output of the block before: %s", err, output)
	}
	if !holds(got, want) {
		return "the block before prints something else: " + output
	}
	return ""
}

// holds reports whether a document has everything that a page shows of it.
func holds(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		all, _ := got.(map[string]any)
		for key, value := range want {
			if !holds(all[key], value) {
				return false
			}
		}
		return true
	case []any:
		all, _ := got.([]any)
		for i, value := range want {
			if i >= len(all) || !holds(all[i], value) {
				return false
			}
		}
		return true
	}
	return got == want
}

// pattern is the output on a page as a pattern: a line of dots stands for any lines, and dots within a line for the
// rest of a word, of a line or for nothing.
func pattern(shown string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^`)
	for line := range strings.Lines(trimLines(shown)) {
		if line == "...\n" {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
	}
	return regexp.MustCompile(b.String() + `$`)
}

var trailing = regexp.MustCompile(`(?m)[ \t]+$`)

// trimLines leaves out spaces before the ends of lines, which no reader sees, and ends the last line.
func trimLines(text string) string {
	if text = trailing.ReplaceAllString(text, ""); text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

// untilOutput waits until the output NAME.out is as NAME.want demands, and says whether it was within the time.
func untilOutput(args []string) int {
	want, err := os.ReadFile(args[0] + ".want")
	if err != nil {
		return 2
	}
	shown := pattern(string(want))
	for end := time.Now().Add(patience / 4); time.Now().Before(end); <-time.After(20 * time.Millisecond) {
		if got, _ := os.ReadFile(args[0] + ".out"); shown.MatchString(trimLines(string(got))) {
			return 0
		}
	}
	return 1
}
