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
	{38, "bash cannot read this"},
	{43, "unknown flag --wacth"},
	{49, "confirm.aftre is not a known key"},
	{53, "did not find expected"},
	{57, "no JSON"},
	{62, "no_such_column"},
	{65, "write the database"},
	{69, `no test knows blocks of the kind "java"`},
	{73, "stat"},
	{73, "no target nothing"},
	{73, "MSGHANDLER_CONFIRM_AFTRE"},
	{73, "no test/nowhere/x.go"},
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
	blocks := slices.DeleteFunc(p.blocks, func(b *block) bool { return b.language != "sh" })
	got := newSession(t, blocks).run()
	if len(got) != 2 || got[0].line != 32 || got[1].line != 40 || !strings.Contains(got[1].what, "other") {
		t.Errorf("got %v", got)
	}
	failing := newBlock(p.path, 50, "sh run")
	failing.lines = []string{"echo before", "false"}
	got = newSession(t, []*block{blocks[0], failing, blocks[2]}).run()
	if len(got) != 1 || got[0].line != 50 || !strings.Contains(got[0].what, "before") {
		t.Errorf("a block that fails is reported as %v", got)
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
