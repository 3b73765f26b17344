package house

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// lower turns the reached figures into the new limits: go test ./test/house -args -lower
var lower = flag.Bool("lower", false, "lower the limits in backlog.txt to what is there")

const backlogFile = "backlog.txt"

// backlogMu is held while backlog.txt is rewritten: the rules are tested side by side.
var backlogMu sync.Mutex

// limits are the places that do not keep a rule yet, each with its allowed distance from the rule. backlog.txt holds
// a line for each: rule, place, limit. A limit may only fall, and a place that keeps the rule leaves the file.
type limits struct {
	rule string
	of   map[string]float64
	// reached is the distance of each place from the rule now, without the places that keep the rule.
	reached map[string]float64
	seen    map[string]bool
}

// backlog reads the limits of a rule.
func backlog(t *testing.T, rule string) *limits {
	t.Helper()
	backlogMu.Lock()
	defer backlogMu.Unlock()
	l := &limits{rule: rule, of: map[string]float64{}, reached: map[string]float64{}, seen: map[string]bool{}}
	for _, line := range readBacklog(t) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != rule {
			continue
		}
		limit, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		if len(fields) != 3 || err != nil {
			t.Fatalf("%s: %q is not of the form RULE PLACE LIMIT", backlogFile, line)
		}
		l.of[fields[1]] = limit
	}
	return l
}

func readBacklog(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(backlogFile)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimRight(string(data), "\n"), "\n")
}

// hold fails when a place is further from the rule than its limit, or is listed although the place keeps the rule.
// Shares are compared with one decimal, as written in the file.
func (l *limits) hold(t *testing.T, place string, is, aim float64, what string) {
	t.Helper()
	is = math.Round(is*10) / 10
	l.seen[place] = true
	limit, listed := l.of[place]
	if is > aim {
		l.reached[place] = is
	}
	switch {
	case listed && is <= aim && !*lower:
		t.Errorf("%s keeps the rule %s: run go test ./test/house -args -lower", place, l.rule)
	case is > max(limit, aim):
		t.Errorf("%s: %g "+what+" (allowed here: %g)", place, is, max(limit, aim))
	}
}

// finish fails for lines about missing places. With -lower finish writes the reached figures instead.
func (l *limits) finish(t *testing.T) {
	t.Helper()
	if *lower {
		l.write(t)
		return
	}
	for place := range l.of {
		if !l.seen[place] {
			t.Errorf("%s names %s, and there is no such place: run go test ./test/house -args -lower", backlogFile, place)
		}
	}
}

// write replaces the rule's lines. No limit rises, and no place is added.
func (l *limits) write(t *testing.T) {
	t.Helper()
	backlogMu.Lock()
	defer backlogMu.Unlock()
	kept := slices.DeleteFunc(readBacklog(t), func(line string) bool { return strings.HasPrefix(line, l.rule+" ") })
	for place, limit := range l.of {
		if is, open := l.reached[place]; open {
			kept = append(kept, fmt.Sprint(l.rule, " ", place, " ", min(is, limit)))
		}
	}
	first := slices.IndexFunc(kept, func(line string) bool { return line != "" && !strings.HasPrefix(line, "#") })
	if first >= 0 {
		slices.Sort(kept[first:])
	}
	if err := os.WriteFile(backlogFile, []byte(strings.Join(kept, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}
