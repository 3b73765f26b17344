package planted

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pageRow is a row of the table of bugs: name, description, finding, needs.
var pageRow = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| [^|]+ \\| ([^|]+) \\| ([^|]*)\\|$")

// docs/reference/findings.md says of each planted bug which finding names it.
func TestPageListsEachPlantedBug(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "findings.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := pageRow.FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(bugs) {
		t.Errorf("the page lists %d bugs of %d", len(rows), len(bugs))
	}
	for n, row := range rows[:min(len(rows), len(bugs))] {
		finding, needs := strings.Trim(row[2], "` "), strings.Trim(row[3], "` ")
		if want := bugs[n]; row[1] != want.name || finding != cmp.Or(want.finding, "not found") || needs != want.needs {
			t.Errorf("the page says %q: %q, %q of %+v", row[1], finding, needs, want)
		}
	}
}
