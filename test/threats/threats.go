// Package threats reads the table of SECURITY.md, so that tests beside the code can hold its rows to what the code has.
package threats

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Row is a line of the table.
type Row struct {
	// Actor wants to do what Attack says.
	Actor, Attack string
	// Defence says what stops the attack.
	Defence string
	// Tests are the cell of tests.
	Tests string
}

// Policy is the text of SECURITY.md.
func Policy(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "..", "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Rows are the lines of the table.
func Rows(t testing.TB) (rows []Row) {
	t.Helper()
	_, table, _ := strings.Cut(Policy(t), "\n|---|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if len(cells) != 4 {
			t.Fatalf("a line of the table has %d cells, want 4: %s", len(cells), line)
		}
		rows = append(rows, Row{cells[0], cells[1], cells[2], cells[3]})
	}
	return rows
}

// Defence is what stops the attack whose text begins so.
func Defence(t testing.TB, attack string) string {
	t.Helper()
	rows := Rows(t)
	i := slices.IndexFunc(rows, func(r Row) bool { return strings.HasPrefix(r.Attack, attack) })
	if i < 0 {
		t.Fatalf("SECURITY.md has no row of attackers who want to %s", attack)
	}
	return rows[i].Defence
}

// Names are the texts in a row that code is quoted with.
func Names(text string) (names []string) {
	for i, part := range strings.Split(text, "`") {
		if i%2 == 1 {
			names = append(names, part)
		}
	}
	return names
}
