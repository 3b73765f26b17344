package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A test that a page names as a proof exists.
func TestPagesNameExistingTests(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	for _, page := range pages(t) {
		for _, quoted := range regexp.MustCompile("`(Test|Example)[A-Z][A-Za-z0-9]+[`/]").FindAllString(read(t, page), -1) {
			if name := strings.Trim(quoted, "`/"); name != "TestX" && !slices.Contains(tests, name) {
				t.Errorf("%s names %s, and there is no such test", filepath.Base(page), name)
			}
		}
	}
}

// selection is the pattern in a go test command. Its first part, up to a slash, is matched against whole tests.
var selection = regexp.MustCompile("[\\s`]-(?:run|bench)\\s+'?([^'`\\s/]+)")

// go test succeeds when no test matches -run, so a renamed test would silently leave a target of make or a page empty.
func TestSelectionsMatchATest(t *testing.T) {
	t.Parallel()
	tests := testNames(t)
	commands := map[string]string{}
	for _, path := range append(pages(t), filepath.Join("..", "..", "Makefile")) {
		commands[filepath.Base(path)] = read(t, path)
	}
	for _, f := range files(t) {
		for _, group := range f.tree.Comments {
			for _, comment := range group.List {
				commands[f.path] += comment.Text + "\n"
			}
		}
	}
	for place, text := range commands {
		for _, found := range selection.FindAllStringSubmatch(text, -1) {
			for pattern := range strings.SplitSeq(strings.ReplaceAll(found[1], "$$", "$"), "|") {
				if strings.HasPrefix(pattern, "$(") || pattern == "TestX" {
					continue // a variable of make, or a placeholder
				}
				expression, err := regexp.Compile(pattern)
				if err != nil || !expression.MatchString("") && !slices.ContainsFunc(tests, expression.MatchString) {
					t.Errorf("%s selects tests by %q, and no test matches (%v)", place, pattern, err)
				}
			}
		}
	}
}

// testNames lists the tests, examples and benchmarks of the module.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	for _, f := range files(t) {
		for _, declaration := range f.tree.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && f.test && function.Recv == nil {
				names = append(names, function.Name.Name)
			}
		}
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
