package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// lower turns the reached figures into the new limits: go test ./test/docs -run TestBlocksHold -args -lower
var lower = flag.Bool("lower", false, "lower the limits in backlog.txt to what is there")

const (
	backlogFile = "backlog.txt"
	howToLower  = "run go test ./test/docs -run TestBlocksHold -args -lower"
)

// backlog has the number of problems that each page may have. A limit may only fall.
type backlog struct {
	head   []string
	limits map[string]int

	mu      sync.Mutex
	reached map[string]int
}

func readBacklog(t *testing.T) *backlog {
	t.Helper()
	data, err := os.ReadFile(backlogFile)
	if err != nil {
		t.Fatal(err)
	}
	b := &backlog{limits: map[string]int{}, reached: map[string]int{}}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "#") {
			b.head = append(b.head, line)
			continue
		}
		limit, err := strconv.Atoi(fields[len(fields)-1])
		if len(fields) != 2 || err != nil {
			t.Fatalf("%s: %q is not of the form PAGE LIMIT", backlogFile, line)
		}
		b.limits[fields[0]] = limit
	}
	return b
}

// hold reports the problems of a page that has more than its limit, and a limit that is too high.
func (b *backlog) hold(t *testing.T, page string, problems []problem) {
	t.Helper()
	b.mu.Lock()
	b.reached[page] = len(problems)
	b.mu.Unlock()
	limit := b.limits[page]
	switch {
	case len(problems) < limit && !*lower:
		t.Errorf("%s allows %d problems of %s, and there are %d: %s", backlogFile, limit, page, len(problems), howToLower)
	case len(problems) <= limit:
		for _, p := range problems {
			t.Log(p)
		}
	default:
		for _, p := range problems {
			t.Error(p)
		}
	}
}

// finish reports limits of missing pages. With -lower finish writes the reached figures instead: no limit rises, and no
// page is added.
func (b *backlog) finish(t *testing.T) {
	t.Helper()
	lines := slices.Clone(b.head)
	for _, page := range slices.Sorted(maps.Keys(b.limits)) {
		reached, is := b.reached[page]
		if !is && !*lower {
			t.Errorf("%s names %s, and there is no such page: %s", backlogFile, page, howToLower)
		}
		if left := min(reached, b.limits[page]); left > 0 {
			lines = append(lines, fmt.Sprintf("%s %d\n", page, left))
		}
	}
	if !*lower {
		return
	}
	if err := os.WriteFile(backlogFile, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
}
