package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The site has each page as Markdown beside it, and llms.txt names each of them.
func TestSiteHasPagesAsText(t *testing.T) {
	t.Parallel()
	site := t.TempDir()
	if out, err := exec.Command(filepath.Join(root, "scripts", "site-text.sh"), site).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	list := contentOf(t, filepath.Join(site, "llms.txt"))
	if !strings.HasPrefix(list, "# msghandler\n\n> ") {
		t.Errorf("llms.txt begins with %.40q", list)
	}
	for _, path := range pages(t) {
		name, onSite := strings.CutPrefix(path, "docs/")
		switch {
		case !onSite:
			continue
		case name == "README.md":
			name = "index.md"
		case !strings.Contains(list, "("+name+")"):
			t.Errorf("llms.txt does not name %s", name)
		}
		if contentOf(t, filepath.Join(site, name)) != contentOf(t, filepath.Join(root, path)) {
			t.Errorf("%s on the site differs from %s", name, path)
		}
	}
}

func contentOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
