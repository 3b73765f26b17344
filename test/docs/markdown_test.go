package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page is a page in Markdown.
type page struct {
	path   string
	blocks []*block
	spans  []span
	// problems are the mistakes that make a block unreadable.
	problems []problem
}

// block is a fenced block of code. The words of its info string are the language, and then NAME or NAME=VALUE.
type block struct {
	page     string
	line     int // of the opening fence
	language string
	words    map[string]string
	lines    []string
	// output is the block right after this block, with nothing but blank lines between.
	output *block
	// before are the blocks of the page above this block.
	before []*block
}

// span is code within a paragraph or a table.
type span struct {
	page string
	line int
	code string
}

var (
	fencePattern = regexp.MustCompile("^( *)(```+)(.*)$")
	spanPattern  = regexp.MustCompile("`([^`]+)`")
)

func (b *block) text() string { return strings.Join(b.lines, "\n") + "\n" }

func (b *block) is(word string) bool {
	_, is := b.words[word]
	return is
}

// problem is a mistake in a line of the block; line 0 is the opening fence.
func (b *block) problem(line int, what string) problem { return problem{b.page, b.line + line, what} }

func readPage(t *testing.T, path string) *page {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{path: path}
	p.parse(strings.Split(string(data), "\n"))
	return p
}

// parse finds blocks and spans.
func (p *page) parse(lines []string) {
	var open *block
	var indent, fence string
	adjacent := false // only blank lines have followed the last block
	for i, line := range lines {
		found := fencePattern.FindStringSubmatch(line)
		switch {
		case open == nil && found != nil:
			indent, fence = found[1], found[2]
			open = newBlock(p.path, i+1, found[3])
			open.before = p.blocks
			if last := len(p.blocks) - 1; adjacent && last >= 0 {
				p.blocks[last].output = open
			}
		case open == nil:
			adjacent = adjacent && strings.TrimSpace(line) == ""
			for _, code := range spanPattern.FindAllStringSubmatch(line, -1) {
				p.spans = append(p.spans, span{p.path, i + 1, code[1]})
			}
		case found != nil && found[2] == fence && strings.TrimSpace(found[3]) == "":
			p.blocks = append(p.blocks, open)
			open, adjacent = nil, true
		default:
			open.lines = append(open.lines, strings.TrimPrefix(line, indent))
		}
	}
	if open != nil {
		p.problems = append(p.problems, open.problem(0, "the block does not end: close it with "+fence))
	}
}

func newBlock(path string, line int, info string) *block {
	b := &block{page: path, line: line, words: map[string]string{}}
	for i, word := range strings.Fields(info) {
		if i == 0 {
			b.language = word
			continue
		}
		name, value, _ := strings.Cut(word, "=")
		b.words[name] = value
	}
	return b
}
