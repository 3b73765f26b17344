package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the pages name as the proof of something must be there.
func TestTestsThatThePagesNameExist(t *testing.T) {
	t.Parallel()
	tests := map[string]bool{}
	for _, f := range files(t) {
		for _, declaration := range f.tree.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && f.test {
				tests[function.Name.Name] = true
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, quoted := range regexp.MustCompile("`(Test|Example)[A-Z][A-Za-z0-9]+[`/]").FindAllString(string(text), -1) {
			if name := strings.Trim(quoted, "`/"); !tests[name] {
				t.Errorf("%s names %s, and there is no such test", filepath.Base(page), name)
			}
		}
	}
}
