package house

import (
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	// mostWords is how long a page may be that people read from top to bottom, in words outside of blocks of code.
	mostWords = 1500
	// index is the page that leads to all others.
	index = "docs/README.md"
	// fewPages, allWords and medianWords are the aims for the pages of the repository together.
	fewPages, allWords, medianWords = 60, 80000, 600
)

// lookedUp are the pages, by placeOf, in which people look something up.
var lookedUp = []string{"reference", "evidence", "CONTRIBUTING.md"}

// A page that people read from top to bottom is short.
func TestPagesStayShort(t *testing.T) {
	t.Parallel()
	longest, above := 0, 0
	for _, page := range pages(t) {
		place := placeOf(page)
		if slices.ContainsFunc(lookedUp, func(of string) bool { return under(place, of) }) {
			continue
		}
		words := len(strings.Fields(fence.ReplaceAllString(read(t, page), "")))
		longest = max(longest, words)
		if words > mostWords {
			above++
		}
		atMost(t, place, float64(words), mostWords, "words: divide the page")
	}
	figure(t, "pages over %d words: %d (aim 0); the longest has %d", mostWords, above, longest)
}

// The pages of the whole repository stay few and short. The figures are reported, not held.
func TestPagesTogetherStayShort(t *testing.T) {
	t.Parallel()
	var lengths []int
	all := 0
	for _, name := range committed(t) {
		if path.Ext(name) != ".md" || isTestdata(name) {
			continue
		}
		words := len(strings.Fields(fence.ReplaceAllString(readTop(t, name), "")))
		lengths, all = append(lengths, words), all+words
	}
	slices.Sort(lengths)
	figure(t, "pages: %d (aim %d), with %d words (aim %d), the median page %d (aim %d)",
		len(lengths), fewPages, all, allWords, lengths[len(lengths)/2], medianWords)
}

// The index of the documentation leads to each page, once.
func TestTheIndexLeadsToEveryPage(t *testing.T) {
	t.Parallel()
	listed := map[string]int{}
	for _, found := range pageLink.FindAllStringSubmatch(withoutCode(readTop(t, index)), -1) {
		listed[path.Join(path.Dir(index), found[1])]++
	}
	for _, page := range committed(t) {
		switch times := listed[page]; {
		case page == index || path.Ext(page) != ".md" || !under(page, path.Dir(index)):
		case times != 1:
			t.Errorf("%s has %d links to %s, want one", index, times, page)
		}
	}
}
