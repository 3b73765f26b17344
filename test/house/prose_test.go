package house

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	// mostPronouns is the share of words in a package's comments, in percent, that may be pronouns without a noun.
	mostPronouns = 5.0
	// fewWords is how many words of comments a package needs before the share says anything.
	fewWords = 200
	// longSentence is the number of words from which a sentence of a page is long, mostLong the share of long ones in
	// percent.
	longSentence, mostLong = 35, 3.0
)

var (
	word     = regexp.MustCompile(`[A-Za-z][A-Za-z'-]*`)
	pronouns = []string{"it", "that", "those", "what", "one", "whoever"}
)

func TestCommentsNameTheirNouns(t *testing.T) {
	t.Parallel()
	words, bare := map[string]int{}, map[string]int{}
	for _, f := range files(t) {
		if f.generated {
			continue
		}
		for _, group := range f.tree.Comments {
			all, pronouns := bareIn(group.Text())
			words[f.pkg.room()] += all
			bare[f.pkg.room()] += pronouns
		}
	}
	allWords, allBare, above := 0, 0, 0
	for room, n := range words {
		allWords, allBare = allWords+n, allBare+bare[room]
		share := percent(bare[room], n)
		if n < fewWords {
			share = 0
		}
		if share > mostPronouns {
			above++
		}
		atMost(t, room, share, mostPronouns, "%% of the words in comments are bare pronouns: name the noun")
	}
	figure(t, "bare pronouns in comments: %.1f %% of the words; packages above %.0f %%: %d (aim 0)",
		percent(allBare, allWords), mostPronouns, above)
}

// bareIn counts the words of a text, and the pronouns without a noun among them.
func bareIn(text string) (words, bare int) {
	for _, w := range word.FindAllString(text, -1) {
		words++
		if slices.Contains(pronouns, strings.ToLower(w)) {
			bare++
		}
	}
	return words, bare
}

func TestPagesHaveShortSentences(t *testing.T) {
	t.Parallel()
	allSentences, allLong, above := 0, 0, 0
	for _, page := range pages(t) {
		sentences := sentencesOf(t, page)
		long := 0
		for _, sentence := range sentences {
			if len(strings.Fields(sentence)) > longSentence {
				long++
			}
		}
		allSentences, allLong = allSentences+len(sentences), allLong+long
		share := percent(long, len(sentences))
		if share > mostLong {
			above++
		}
		atMost(t, placeOf(page), share, mostLong, "%% of the sentences have more than 35 words: split them")
	}
	figure(t, "sentences over %d words in docs: %.1f %%; pages above %.0f %%: %d (aim 0)",
		longSentence, percent(allLong, allSentences), mostLong, above)
}

func TestNoTypeEmbedsItsOwner(t *testing.T) {
	t.Parallel()
	all := refuse(t, nil, "a pointer to another type of the package is embedded, and so all it can do: name the field",
		func(n ast.Node) (found bool) {
			if structure, ok := n.(*ast.StructType); ok {
				for _, field := range structure.Fields.List {
					if pointer, is := field.Type.(*ast.StarExpr); is && len(field.Names) == 0 {
						_, ours := pointer.X.(*ast.Ident)
						found = found || ours
					}
				}
			}
			return found
		})
	figure(t, "types that embed their owner: %d (aim 0)", all)
}

func TestGoroutinesHaveAnOwner(t *testing.T) {
	t.Parallel()
	all := refuse(t, []string{"test/...", "internal/ground/lifecycle"}, "a go statement outside of a group: "+
		"start goroutines with Go of a sync.WaitGroup or lifecycle.Group, and wait for them on Close",
		func(n ast.Node) bool {
			_, is := n.(*ast.GoStmt)
			return is
		})
	figure(t, "go statements without an owner: %d (aim 0)", all)
}

// refuse fails for each node of shipped code that is forbidden outside of some rooms, and counts these nodes.
func refuse(t *testing.T, except []string, why string, forbidden func(ast.Node) bool) (count int) {
	t.Helper()
	for _, f := range files(t) {
		if f.test || f.generated || in(f.pkg.room(), except) {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if n != nil && forbidden(n) {
				count++
				t.Errorf("%s:%d: %s", f.path, f.line(n.Pos()), why)
			}
			return true
		})
	}
	return count
}

// pages lists the pages of docs/ and those of the root that users and contributors read.
func pages(t *testing.T) (found []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			found = append(found, path)
		}
		return err
	})
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"} {
		found = append(found, filepath.Join(root, page))
	}
	return found
}

// placeOf names a page within docs/, and a page of the root by its file name.
func placeOf(page string) string {
	if within, err := filepath.Rel(filepath.Join("..", "..", "docs"), page); err == nil &&
		!strings.HasPrefix(within, "..") {
		return within
	}
	return filepath.Base(page)
}

var (
	fence       = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan    = regexp.MustCompile("`[^`]*`")
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
	sentenceEnd = regexp.MustCompile(`[.!?][)"”]?(\s|\*|$)|\n\s*\n|\n\s*[-*] |\n\s*[0-9]+\. `)
)

// sentencesOf splits a page into sentences. Code and tables are left out; a piece of code in a sentence is one word.
func sentencesOf(t *testing.T, page string) (sentences []string) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	for line := range strings.Lines(fence.ReplaceAllString(string(data), "\n\n")) {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "#") {
			line = "\n"
		}
		kept = append(kept, line)
	}
	text := linkTarget.ReplaceAllString(codeSpan.ReplaceAllString(strings.Join(kept, ""), "code"), "]")
	for _, sentence := range sentenceEnd.Split(text, -1) {
		if len(strings.Fields(sentence)) > 1 {
			sentences = append(sentences, sentence)
		}
	}
	return sentences
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * float64(part) / float64(whole)
}
