package house

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The aims for the whole. They are reported, not held.
const (
	mostCode, mostTests, mostLinked     = 76000, 108000, 57000
	mostModules, mostKeys, mostAppField = 12, 95, 20
	mostBack, mostBare                  = 15.0, 1.0
)

func TestFiguresOfTheWhole(t *testing.T) {
	t.Parallel()
	code, tests, modules := 0, 0, 0
	for _, name := range committed(t) {
		if path.Base(name) == "go.mod" {
			modules++
		}
		if path.Ext(name) != ".go" || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		lines := strings.Count(readTop(t, name), "\n")
		if strings.HasSuffix(name, "_test.go") || under(name, "test") || under(name, "internal/store/storetest") {
			tests += lines
		} else {
			code += lines
		}
	}
	keys := strings.Count(readTop(t, "docs/reference/configuration.md"), "\n| `")
	figure(t, "lines of code without tests and generated code: %d (aim %d)", code, mostCode)
	figure(t, "lines of tests: %d (aim %d)", tests, mostTests)
	figure(t, "own lines linked into cmd/msghandler: %d (aim %d)", linkedLines(t, "cmd/msghandler"), mostLinked)
	figure(t, "go.mod files: %d (aim %d)", modules, mostModules)
	figure(t, "configuration keys: %d (aim %d)", keys, mostKeys)
	figure(t, "fields of App: %d (aim %d)", appFields(t), mostAppField)
}

// linkedLines counts the lines of ours that a program links, without generated lines.
func linkedLines(t *testing.T, program string) (lines int) {
	t.Helper()
	var linked []string
	for _, p := range packages(t) {
		if p.room() == program {
			linked = append([]string{p.ImportPath}, p.Deps...)
		}
	}
	for _, f := range files(t) {
		if !f.test && !f.generated && slices.Contains(linked, f.pkg.ImportPath) {
			lines += f.set.File(f.tree.Pos()).LineCount()
		}
	}
	return lines
}

func appFields(t *testing.T) (fields int) {
	t.Helper()
	for _, f := range files(t) {
		ast.Inspect(f.tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if ok && f.pkg.room() == "internal/app" && !f.test && spec.Name.Name == "App" {
				fields = spec.Type.(*ast.StructType).Fields.NumFields()
			}
			return true
		})
	}
	return fields
}

// earlier finds mentions of what was before.
var earlier = regexp.MustCompile(`(?i)\b((earlier|older|previous|former) (version|release|layout)s?|` +
	`before 20\d\d-|since v0)\b`)

func TestMentionsOfEarlierVersions(t *testing.T) {
	t.Parallel()
	mentions := 0
	for _, name := range committed(t) {
		if !slices.Contains([]string{".go", ".md", ".lua", ".proto", ".sh", ".yaml", ".txt"}, path.Ext(name)) ||
			name == "CHANGELOG.md" || under(name, "test/house") {
			continue
		}
		for _, found := range earlier.FindAllString(readTop(t, name), -1) {
			mentions++
			t.Logf("%s: %q", name, found)
		}
	}
	figure(t, "mentions of earlier versions: %d (aim 0)", mentions)
}

// reports are the calls whose texts people read when a test fails or logs.
var reports = []string{"Error", "Errorf", "Fatal", "Fatalf", "Log", "Logf", "Skip", "Skipf", "Eventually"}

func TestTextsNameTheirNouns(t *testing.T) {
	t.Parallel()
	words, bare := map[bool]int{}, map[bool]int{}
	for _, f := range files(t) {
		test := f.test || under(f.pkg.room(), "test")
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !speaks(selector, test) {
				return true
			}
			for _, argument := range call.Args {
				if text, ok := argument.(*ast.BasicLit); ok {
					all, pronouns := bareIn(text.Value)
					words[test], bare[test] = words[test]+all, bare[test]+pronouns
				}
			}
			return true
		})
	}
	for test, of := range map[bool]string{true: "texts of tests", false: "log lines"} {
		figure(t, "bare pronouns in %s: %.1f %% of %d words (aim %.0f %%)", of, percent(bare[test], words[test]), words[test],
			mostBare)
	}
}

// speaks says whether a call reports in a test, or logs in shipped code.
func speaks(call *ast.SelectorExpr, test bool) bool {
	if test {
		return slices.Contains(reports, call.Sel.Name)
	}
	_, logs := pairsFrom[call.Sel.Name]
	return logs && !isIdent(call.X, "http") && !isIdent(call.X, "slog")
}

// arrow leads from a file to another file of its package that declares what the first one uses.
type arrow struct{ from, to string }

// TestArrowsInsideRooms counts the arrows that point back: those that point up in the best order of a room's files.
func TestArrowsInsideRooms(t *testing.T) {
	t.Parallel()
	const few = 40 // fewer arrows say little
	var rooms []string
	shares := map[string]float64{}
	for path, arrows := range arrowsOf(t) {
		if len(arrows) < few {
			continue
		}
		room, back := strings.TrimPrefix(path, module+"/"), arrowsBack(arrows)
		shares[room] = percent(back, len(arrows))
		rooms = append(rooms, room)
		t.Logf("%s: %d of %d arrows point back", room, back, len(arrows))
	}
	slices.SortFunc(rooms, func(a, b string) int { return int(1000 * (shares[b] - shares[a])) })
	above := slices.IndexFunc(rooms, func(room string) bool { return shares[room] <= mostBack })
	var worst []string
	for _, room := range rooms[:3] {
		worst = append(worst, fmt.Sprintf("%s %.0f %%", room, shares[room]))
	}
	figure(t, "rooms with more than %.0f %% of their arrows back: %d of %d (aim 0); the most: %s", mostBack, above,
		len(rooms), strings.Join(worst, ", "))
}

func arrowsOf(t *testing.T) map[string]map[arrow]bool {
	t.Helper()
	found := map[string]map[arrow]bool{}
	for path, info := range typeCheck(t).infos {
		found[path] = map[arrow]bool{}
		for name, used := range info.Uses {
			if used.Pkg() == nil || used.Pkg().Path() != path || used.Parent() != nil && used.Parent() != used.Pkg().Scope() {
				continue
			}
			if a := (arrow{set.File(name.Pos()).Name(), set.File(used.Pos()).Name()}); a.from != a.to {
				found[path][a] = true
			}
		}
	}
	return found
}

// arrowsBack takes files away, always the one with the most arrows out for its arrows in. What points at a file that
// was taken before points back.
func arrowsBack(arrows map[arrow]bool) (back int) {
	left := maps.Clone(arrows)
	for len(left) > 0 {
		balance := map[string]int{}
		for a := range left {
			balance[a.from]++
			balance[a.to]--
		}
		// A file without arrows in costs nothing, and one without arrows out is below all others.
		sources, sinks := maps.Clone(balance), maps.Clone(balance)
		for a := range left {
			delete(sources, a.to)
			delete(sinks, a.from)
		}
		next := ""
		for _, files := range []map[string]int{sources, sinks, balance} {
			for _, file := range slices.Sorted(maps.Keys(files)) {
				if next == "" || files[file] > files[next] {
					next = file
				}
			}
			if next != "" {
				break
			}
		}
		_, last := sinks[next]
		for a := range left {
			if a.to == next && !last {
				back++
			}
			if a.from == next || a.to == next {
				delete(left, a)
			}
		}
	}
	return back
}
