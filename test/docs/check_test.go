package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// checks has the languages that a block may have, each with its check; nil: the block is free text.
var checks = map[string]func(t *testing.T, b *block) []problem{
	"go":      checkGo,
	"sh":      checkShell,
	"console": checkConsole,
	"yaml":    checkYAML,
	"json":    checkJSON,
	"sql":     checkSQL,
	"promql":  nil, // checkExpressions reads all expressions of a page at once
	"text":    nil,
	"mermaid": nil,
}

// words are what a block may have behind its language.
var words = map[string][]string{
	"sh":   {"run", "terminal", "slow", "with", "for"},
	"yaml": {"config"},
	"sql":  slices.Collect(maps.Keys(dialects)),
}

// check returns the problems of a block.
func check(t *testing.T, b *block) []problem {
	t.Helper()
	return append(checkWords(b), checkBlock(t, b)...)
}

// walks are the tests that run commands of pages on an installation that they have broken, or under load.
var walks = []string{
	"TestDrill", "TestPageMovesRedis", "TestPageMovesRabbitMQ", "TestPageOpensAnotherRegion", "TestPageChangesShards",
	"TestPageScalesConsumers",
}

// checkWords demands that a test knows each word behind the language.
func checkWords(b *block) (problems []problem) {
	for word := range b.words {
		if !slices.Contains(append(words[b.language], "file", "test"), word) {
			problems = append(problems, b.problem(0, fmt.Sprintf("no test knows the word %s behind %q: see CONTRIBUTING.md",
				word, b.language)))
		}
	}
	if name := b.words["test"]; b.language == "sh" && b.is("test") && !slices.Contains(walks, name) {
		problems = append(problems, b.problem(0, name+" may do what the page does not say: write sh run, and a session "+
			"types the page and does nothing else"))
	}
	for _, name := range demanded(b) {
		if services[name] == nil {
			problems = append(problems, b.problem(0, fmt.Sprintf("there is no server %q: write some of %s", name,
				strings.Join(slices.Sorted(maps.Keys(services)), ", "))))
		}
	}
	return problems
}

func checkBlock(t *testing.T, b *block) []problem {
	t.Helper()
	if quoted, is := b.words["file"]; is {
		return checkQuoted(b, quoted)
	}
	if name, is := b.words["test"]; is {
		return checkTested(b, name)
	}
	checkLanguage, known := checks[b.language]
	switch {
	case !known:
		return []problem{b.problem(0, fmt.Sprintf("no test knows blocks of the kind %q: write file=PATH behind the kind, or "+
			"one of the kinds %s (see CONTRIBUTING.md)", b.language, strings.Join(slices.Sorted(maps.Keys(checks)), ", ")))}
	case checkLanguage == nil:
		return nil
	}
	return checkLanguage(t, b)
}

// checkQuoted demands that the lines of the block stand in a file, in this order and one after the other. The file may
// have all of them deeper by the same indentation.
func checkQuoted(b *block, path string) []problem {
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return []problem{b.problem(0, fmt.Sprintf("%v: correct file=%s", err, path))}
	}
	lines := strings.Split(string(data), "\n")
	best := 0
	for first := range lines {
		n := sameLines(lines[first:], b.lines)
		if n == len(b.lines) {
			return nil
		}
		best = max(best, n)
	}
	return []problem{b.problem(1+best, fmt.Sprintf("%s does not have this line there: %q; copy the block from the file",
		path, b.lines[best]))}
}

// sameLines says how many lines at the beginning are the block's, apart from an indentation of all lines.
func sameLines(lines, of []string) int {
	indentation, indented := strings.CutSuffix(lines[0], of[0])
	if !indented || strings.TrimSpace(indentation) != "" {
		return 0
	}
	for i, line := range of {
		if i == len(lines) || strings.TrimSpace(line) != "" && lines[i] != indentation+line ||
			strings.TrimSpace(line) == "" && strings.TrimSpace(lines[i]) != "" {
			return i
		}
	}
	return len(of)
}

// checkTested demands that a test of that name exists and names the page.
func checkTested(b *block, name string) []problem {
	files, err := within("*_test.go")
	if err != nil {
		return []problem{b.problem(0, err.Error())}
	}
	for _, path := range files {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err == nil && strings.Contains(string(source), "func "+name+"(") && strings.Contains(string(source), b.page) {
			return nil
		}
	}
	return []problem{b.problem(0, fmt.Sprintf("no file has the test %s and this page's name: correct test=%[1]s", name))}
}

// checkYAML parses a block, or loads a block with the word config as the configuration.
func checkYAML(t *testing.T, b *block) []problem {
	if b.is("config") {
		return checkConfig(t, b)
	}
	decoder := yaml.NewDecoder(strings.NewReader(b.text()))
	for {
		var document any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return []problem{b.problem(lineOf(err), err.Error()+": correct the block")}
		}
	}
}

// checkJSON parses one or more documents.
func checkJSON(_ *testing.T, b *block) []problem {
	decoder := json.NewDecoder(strings.NewReader(b.text()))
	for {
		var document any
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			line := 1 + strings.Count(b.text()[:decoder.InputOffset()], "\n")
			return []problem{b.problem(line, "the block is no JSON: "+err.Error())}
		}
	}
}

var linePattern = regexp.MustCompile(`line (\d+)`)

// lineOf is the line that an error of a parser names, or else 0.
func lineOf(err error) (line int) {
	if found := linePattern.FindStringSubmatch(err.Error()); found != nil {
		_, _ = fmt.Sscan(found[1], &line)
	}
	return line
}
