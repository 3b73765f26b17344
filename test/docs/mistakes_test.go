package docs

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mistakes are the lines of testdata/mistakes.md with what is found there.
var mistakes = []struct {
	line int
	what string
}{
	{8, `cannot use "text"`},
	{12, "unknown field Nam"},
	{18, "does not have this line"},
	{21, "no file has the test TestThatIsNowhere"},
	{25, "unknown flag --stat"},
	{26, "is not a duration"},
	{27, "no target tset"},
	{28, "MSGHANDLER_CONFIRM_AFTRE is not a known variable"},
	{29, "unknown flag --odrers"},
	{30, "no scripts/no-such-script.sh"},
	{31, "no ./test/nowhere"},
	{32, "no test of these packages"},
	{33, "not found"},
	{34, "redsi-cli is unknown"},
	{35, "serves POST /readyz"},
	{39, "bash cannot read this"},
	{44, "unknown flag --wacth"},
	{50, "confirm.aftre is not a known key"},
	{54, "did not find expected"},
	{58, "no JSON"},
	{63, "no_such_column"},
	{66, "write the database"},
	{70, `no test knows blocks of the kind "java"`},
	{74, "the word twice"},
	{74, `no server "kafka"`},
	{78, "parse error"},
	{81, "stat"},
	{81, "no target nothing"},
	{81, "MSGHANDLER_CONFIRM_AFTRE"},
	{81, "no test/nowhere/x.go"},
	{83, "no metric msghandler_mesages"},
	{83, "parse error"},
	{83, "no metric msghandler_publish_total"},
	{84, "no program of ours has the flag --onec"},
	{84, "serves GET /metric"},
	{86, "may do what the page does not say"},
}

func TestMistakesAreFound(t *testing.T) {
	t.Parallel()
	const path = "test/docs/testdata/mistakes.md"
	found := problemsOf(t, readPage(t, path))
	for _, m := range mistakes {
		at := slices.IndexFunc(found, func(p problem) bool { return p.line == m.line && strings.Contains(p.what, m.what) })
		if at < 0 {
			t.Errorf("%s:%d: not found: %s", path, m.line, m.what)
			continue
		}
		found = slices.Delete(found, at, at+1)
	}
	for _, p := range found {
		t.Errorf("more than the mistakes: %s", p)
	}
}

func TestSessionsReportOtherOutput(t *testing.T) {
	t.Parallel()
	p := readPage(t, "test/docs/testdata/session.md")
	blocks := executed(p)
	got := newSession(t, blocks).run()
	if len(got) != 2 || got[0].line != 32 || got[1].line != 40 || !strings.Contains(got[1].what, "other") {
		t.Errorf("got %v", got)
	}
	failing := newBlock(p.path, 50, "sh run")
	failing.lines = []string{"echo before", "false"}
	got = newSession(t, []*block{blocks[0], failing, blocks[2]}).run()
	if len(got) != 1 || got[0].line != 50 || !strings.Contains(got[0].what, "before") {
		t.Errorf("a failing block is reported as %v", got)
	}
}

// TestSessionsHaveServers runs a page twice: the second run does not see what the first has left.
func TestSessionsHaveServers(t *testing.T) {
	t.Parallel()
	for _, run := range []string{"first", "second"} {
		t.Run(run, func(t *testing.T) {
			for _, p := range newSession(t, executed(readPage(t, "test/docs/testdata/servers.md"))).run() {
				t.Error(p)
			}
		})
	}
}

func TestOpenBlockIsReported(t *testing.T) {
	t.Parallel()
	p := &page{path: filepath.Join("docs", "open.md")}
	p.parse([]string{"text", "```sh", "ls"})
	if len(p.problems) != 1 || p.problems[0].line != 2 {
		t.Errorf("got %v", p.problems)
	}
}
