package house

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// published is the address of a file of this repository, as pages for people outside of the repository have it.
const published = "https://github.com/msghandler/msghandler/"

var (
	// pageLink is a link or picture in Markdown, with the target in the first group.
	pageLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	// mentioned is a page or picture that code, comments and texts of programs name, with its anchor.
	mentioned = regexp.MustCompile(`(?:^|[^\w./-])((?:docs/[\w./-]+|[A-Z]+)\.(?:md|svg|png)(?:#[\w-]+)?)`)
	// publishedLink is the address of a file, in any text.
	publishedLink = regexp.MustCompile(regexp.QuoteMeta(published) + `(?:blob|tree|edit)/main/([\w./-]*\w(?:#[\w-]+)?)`)
	heading       = regexp.MustCompile(`(?m)^ {0,3}#{1,6} +(.+?) *#* *$`)
	namedAnchor   = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	inlineLink    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
)

// Each link of a page leads to a file of the repository, and its anchor to a heading.
func TestLinksOfPagesResolve(t *testing.T) {
	t.Parallel()
	known, links, broken := newLibrary(t), 0, 0
	for _, page := range known.files {
		if path.Ext(page) != ".md" || isTestdata(page) {
			continue
		}
		for _, found := range pageLink.FindAllStringSubmatch(withoutCode(readTop(t, page)), -1) {
			target := found[1]
			if strings.Contains(target, ":") {
				continue // publishedLink finds the addresses that can be checked here
			}
			links++
			file, anchor, _ := strings.Cut(target, "#")
			if file = path.Join(path.Dir(page), file); strings.HasPrefix(target, "#") {
				file = page
			}
			if err := known.resolve(t, file, anchor); err != nil {
				broken++
				t.Errorf("%s: the link %s: %v", page, target, err)
			}
		}
	}
	figure(t, "links in pages: %d; broken: %d (aim 0)", links, broken)
}

// Pages that code names exist: alerts, the texts of doctor and of the configuration, comments, scripts.
func TestPagesThatCodeNamesExist(t *testing.T) {
	t.Parallel()
	known := newLibrary(t)
	for _, name := range known.files {
		if isTestdata(name) || slices.Contains([]string{".png", ".sum", ".pem"}, path.Ext(name)) {
			continue
		}
		text := readTop(t, name)
		if bytes.IndexByte([]byte(text), 0) >= 0 {
			continue
		}
		named := publishedLink.FindAllStringSubmatch(text, -1)
		if path.Ext(name) != ".md" { // the links of pages are relative to the page
			named = append(named, mentioned.FindAllStringSubmatch(text, -1)...)
		}
		for _, found := range named {
			file, anchor, _ := strings.Cut(found[1], "#")
			if err := known.resolve(t, file, anchor); err != nil {
				t.Errorf("%s names %s: %v", name, found[1], err)
			}
		}
	}
}

// library is what links may lead to: the files of the repository, and the anchors of those pages that were read.
type library struct {
	files   []string
	anchors map[string][]string
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	return &library{files: committed(t), anchors: map[string][]string{}}
}

// resolve says what is wrong with a path from the top of the repository and an anchor in its file.
func (l *library) resolve(t *testing.T, file, anchor string) error {
	t.Helper()
	if file = path.Clean(file); strings.HasPrefix(file, "..") {
		return fmt.Errorf("%s is outside of the repository", file)
	}
	if file != "." && !slices.ContainsFunc(l.files, func(name string) bool { return under(name, file) }) {
		return fmt.Errorf("there is no %s", file)
	}
	if anchor == "" || path.Ext(file) != ".md" {
		return nil
	}
	if l.anchors[file] == nil {
		l.anchors[file] = anchorsOf(readTop(t, file))
	}
	if !slices.Contains(l.anchors[file], anchor) {
		return fmt.Errorf("%s has no heading for #%s", file, anchor)
	}
	return nil
}

// anchorsOf lists the anchors of a page by GitHub's rules: a heading in lower case, without punctuation, with a hyphen
// for each space, and with a number from the second heading of the same text on.
func anchorsOf(page string) (anchors []string) {
	seen := map[string]int{}
	page = fence.ReplaceAllString(page, "")
	for _, found := range heading.FindAllStringSubmatch(page, -1) {
		text := strings.ToLower(inlineLink.ReplaceAllString(found[1], "$1"))
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r):
				return r
			}
			return -1
		}, text)
		if n := seen[anchor]; n > 0 {
			anchors = append(anchors, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			anchors = append(anchors, anchor)
		}
		seen[anchor]++
	}
	for _, found := range namedAnchor.FindAllStringSubmatch(page, -1) {
		anchors = append(anchors, found[1])
	}
	return anchors
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	t.Parallel()
	page := "# A page: `code` and *more*\n\n## The [same](x.md) (2×)\n\n```sh\n# no heading\n```\n\n## The same 2\n\n" +
		"## A_b - c/d?\n\n<a id=\"here\"></a>\n"
	want := []string{"a-page-code-and-more", "the-same-2", "the-same-2-1", "a_b---cd", "here"}
	if got := anchorsOf(page); !slices.Equal(got, want) {
		t.Errorf("anchors %q, want %q", got, want)
	}
}

// withoutCode is a page without its blocks and pieces of code, in which brackets are no links.
func withoutCode(page string) string {
	return codeSpan.ReplaceAllString(fence.ReplaceAllString(page, ""), "code")
}

func isTestdata(name string) bool { return strings.Contains("/"+name, "/testdata/") }

// readTop reads a file by its path from the top of the repository.
func readTop(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
