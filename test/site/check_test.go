package site

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// notFound is the page that a file server sends for an unknown address. It stands outside of the navigation.
const notFound = "404.html"

// page is what the checks read of a built page.
type page struct {
	ids, links, navigation []string
}

// read reads the built pages, by their paths within the site.
func read(dir string) (map[string]page, error) {
	pages := map[string]page{}
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(file) != ".html" {
			return err
		}
		within, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		text, err := os.Open(file)
		if err != nil {
			return err
		}
		defer func() { _ = text.Close() }()
		tree, err := html.Parse(text)
		if err != nil {
			return err
		}
		pages[filepath.ToSlash(within)] = pageOf(tree)
		return nil
	})
	return pages, err
}

func pageOf(tree *html.Node) (p page) {
	for node := range tree.Descendants() {
		for _, attribute := range node.Attr {
			switch attribute.Key {
			case "id":
				p.ids = append(p.ids, attribute.Val)
			case "href", "src":
				p.links = append(p.links, attribute.Val)
				if insidePath(node) {
					p.navigation = append(p.navigation, attribute.Val)
				}
			}
		}
	}
	return p
}

// insidePath says whether a node belongs to the navigation along all pages.
func insidePath(node *html.Node) bool {
	for above := range node.Ancestors() {
		if above.Data == "nav" && slices.Contains(above.Attr, html.Attribute{Key: "class", Val: "path"}) {
			return true
		}
	}
	return false
}

// mistakes lists what is wrong with the site in dir: links that lead nowhere, and pages that a navigation lacks.
func mistakes(dir string) (found []string, err error) {
	pages, err := read(dir)
	if err != nil {
		return nil, err
	}
	if len(pages) == 0 {
		return nil, fmt.Errorf("%s has no pages", dir)
	}
	for name, p := range pages {
		for _, link := range p.links {
			if problem := follow(dir, pages, name, link); problem != "" {
				found = append(found, fmt.Sprintf("%s: the link %s: %s", name, link, problem))
			}
		}
		if name == notFound {
			continue
		}
		reached := []string{"index.html", notFound}
		for _, link := range p.navigation {
			reached = append(reached, path.Join(path.Dir(name), link))
		}
		for other := range pages {
			if !slices.Contains(reached, other) {
				found = append(found, fmt.Sprintf("%s: the navigation lacks %s", name, other))
			}
		}
		for i, id := range p.ids {
			if slices.Contains(p.ids[:i], id) {
				found = append(found, fmt.Sprintf("%s has the id %s twice", name, id))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// follow says what is wrong with a link of the page called name. Nothing is asked of the network.
func follow(dir string, pages map[string]page, name, link string) string {
	target, err := url.Parse(link)
	switch {
	case err != nil:
		return err.Error()
	case target.Scheme != "":
		return ""
	case strings.HasPrefix(link, "/"):
		return "it works only at the top of a server"
	}
	file := name
	if target.Path != "" {
		file = path.Join(path.Dir(name), target.Path)
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(file))); err != nil {
		return "there is no " + file
	}
	if target.Fragment != "" && !slices.Contains(pages[file].ids, target.Fragment) {
		return file + " has no such id"
	}
	return ""
}

// The check itself sees each kind of mistake.
func TestMistakesOfASiteAreFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"index.html": `<nav class="path"><a href="run/ok.html">ok</a></nav><a href="run/none.html">none</a>` +
			`<a href="run/ok.html#here">here</a><a href="https://example.com/none">elsewhere</a>`,
		"run/ok.html": `<nav class="path"><a href="ok.html">ok</a></nav><p id="here"><p id="twice"><p id="twice">` +
			`<a href="/index.html">top</a><a href="#there">there</a><img src="../img/none.svg">`,
		"lost.html": `<nav class="path"><a href="run/ok.html">ok</a><a href="lost.html">lost</a></nav>`,
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := mistakes(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"index.html: the link run/none.html: there is no run/none.html",
		"index.html: the navigation lacks lost.html",
		"run/ok.html has the id twice twice",
		"run/ok.html: the link #there: run/ok.html has no such id",
		"run/ok.html: the link ../img/none.svg: there is no img/none.svg",
		"run/ok.html: the link /index.html: it works only at the top of a server",
		"run/ok.html: the navigation lacks lost.html",
	}
	if !slices.Equal(found, want) {
		t.Errorf("found %q,\nwant  %q", found, want)
	}
}
