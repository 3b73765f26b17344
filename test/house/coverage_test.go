package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// coverageRow is a row of docs/evidence/coverage.md with its three columns.
var coverageRow = regexp.MustCompile(`(?m)^\| (.+) \| (.*?) ?\| (.+) \|$`)

var (
	linkedFile = regexp.MustCompile(`^\[[^]]+\]\(\.\./\.\./([^)#]+)\)$`)
	testSpan   = regexp.MustCompile("`(Test|Example)[A-Za-z0-9]+`")
)

// Each row of docs/evidence/coverage.md says where a point is in the code and which test proves the point, or that the
// point is missing. TestPagesNameExistingTests checks the names of the tests.
func TestCoverageNamesCodeAndTests(t *testing.T) {
	t.Parallel()
	page := read(t, filepath.Join("..", "..", "docs", "evidence", "coverage.md"))
	sections := strings.Split(page, "\n## ")[1:]
	if len(sections) != 5 {
		t.Errorf("docs/evidence/coverage.md has %d sections, want one for each of five systems", len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		points := 0
		for _, row := range coverageRow.FindAllStringSubmatch(section, -1) {
			point, where, proof := row[1], row[2], row[3]
			if point == "point" {
				continue
			}
			points++
			if err := proven(where, proof); err != "" {
				t.Errorf("docs/evidence/coverage.md, %s, %s: %s", title, point, err)
			}
		}
		if rows := strings.Count(section, "\n|") - 2; rows != points || rows == 0 { // the head, and its line of dashes
			t.Errorf("docs/evidence/coverage.md, %s: %d of %d rows have three columns", title, points, rows)
		}
	}
}

// proven says what is wrong with a row.
func proven(where, proof string) string {
	if strings.HasPrefix(proof, "missing: ") {
		if where != "" {
			return "a missing point is nowhere"
		}
		return ""
	}
	file := linkedFile.FindStringSubmatch(where)
	if file == nil {
		return "the second column is no link to a file: " + where
	}
	if _, err := os.Stat(filepath.Join("..", "..", file[1])); err != nil {
		return err.Error()
	}
	if left := strings.Trim(testSpan.ReplaceAllString(proof, ""), ", "); left != "" || !testSpan.MatchString(proof) {
		return "the third column names no test, or more than tests: " + proof
	}
	return ""
}
