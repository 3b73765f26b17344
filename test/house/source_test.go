package house

import (
	"go/ast"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestPackageNamesAreSpecific(t *testing.T) {
	t.Parallel()
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "base", "lib"}
	for _, p := range packages(t) {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, filepath.Base(p.Dir)) {
			t.Errorf("%s: the name says nothing about what is in it, so everything ends up there", p.room())
		}
	}
}

func TestTestsDoNotSleep(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		// In a bubble of testing/synctest time is fake, and to sleep is to let it pass.
		if !f.test || f.importedAs("testing/synctest") != "" {
			continue
		}
		f.uses("time", []string{"Sleep"}, func(line int, _ string) {
			t.Errorf("%s:%d: a test waits for what it needs (a channel, servers.Eventually), never for time to pass: "+
				"a sleep is too short on a slow machine and too long on all others", f.path, line)
		})
	}
}

const (
	// longestFunction and longestFile hold the reached sizes. Longer ones do several things.
	longestFunction, longestFile = 60, 400
	// usualFunction bounds nine of ten functions.
	usualFunction = 25
)

func TestFilesAndFunctionsStaySmall(t *testing.T) {
	t.Parallel()
	var fileLines, functionLines []int
	for _, f := range files(t) {
		if f.test || f.generated {
			continue
		}
		length := f.set.File(f.tree.Pos()).LineCount()
		fileLines = append(fileLines, length)
		atMost(t, f.path, float64(length), longestFile, "lines: split the file by its types")
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			length := f.line(function.End()) - f.line(function.Pos()) + 1
			functionLines = append(functionLines, length)
			atMost(t, f.path+":"+receiver(function)+function.Name.Name, float64(length), longestFunction,
				"lines: the function does several things")
		}
	}
	slices.Sort(fileLines)
	slices.Sort(functionLines)
	usual := percentile(functionLines, 90)
	if usual > usualFunction {
		t.Errorf("90 %% of the functions have up to %d lines; the limit is %d", usual, usualFunction)
	}
	figure(t, "lines of a function (of %d): median %d; 90 %%: %d (at most %d); longest: %d (at most %d)",
		len(functionLines), percentile(functionLines, 50), usual, usualFunction, percentile(functionLines, 100),
		longestFunction)
	figure(t, "lines of a file (of %d): median %d; 90 %%: %d; longest: %d (at most %d)",
		len(fileLines), percentile(fileLines, 50), percentile(fileLines, 90), percentile(fileLines, 100), longestFile)
}

func percentile(sorted []int, percent int) int {
	return sorted[(len(sorted)-1)*percent/100]
}

// words must not be in any committed file. They are written apart here, because this file is committed too.
var words = []struct{ pattern, why string }{
	{"(^|[^a-zA-Z0-9_./-])/(wor" + "k|farm|roo" + "t)/[a-z.]", "a path of one machine is of no use on another"},
	{"\\b(TO" + "DO|FIX" + "ME|XX" + "X)\\b", "what is left to do is done or is an issue, where it is seen"},
	{"[Cc]oordinators? of (before 20|(an )?(earl" + "ier|older) version)", "no version came before the first one"},
}

func TestCommittedFilesHoldNoForbiddenWords(t *testing.T) {
	t.Parallel()
	for _, name := range committed(t) {
		if ext := filepath.Ext(name); ext == ".sum" || ext == ".png" || name == "LICENSE" {
			continue
		}
		data, err := os.ReadFile(filepath.Join("..", "..", name))
		if err != nil {
			continue // Deleted, and not committed yet.
		}
		for _, word := range words {
			if found := regexp.MustCompile(word.pattern).Find(data); found != nil {
				t.Errorf("%s holds %q: %s", name, found, word.why)
			}
		}
	}
}

// committed lists the files that git knows.
func committed(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimRight(git(t, "ls-files", "-z"), "\x00"), "\x00")
}

// git returns the output of a git command in the checkout. Outside of a checkout the test is skipped, except in CI.
func git(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	switch {
	case err != nil && os.Getenv("CI") == "true":
		t.Fatalf("git %s: %v; CI needs a git checkout that git trusts", args[0], err)
	case err != nil:
		t.Skip("this is not a git checkout: " + err.Error())
	}
	return string(out)
}

// longestName bounds the words of a test's name: a name is read in lists and remembered.
const longestName = 6

func TestNamesOfTestsAreShort(t *testing.T) {
	t.Parallel()
	long := 0
	for _, name := range testNames(t) {
		if words := wordsOf(strings.TrimPrefix(name, "Test")); strings.HasPrefix(name, "Test") && words > longestName {
			long++
			t.Errorf("%s has %d words, want at most %d", name, words, longestName)
		}
	}
	figure(t, "names of tests over %d words: %d (aim 0)", longestName, long)
}

// wordsOf counts the words of a name in camel case: HTTPAnswer has two.
func wordsOf(name string) (words int) {
	runes := []rune(name)
	for i, r := range runes {
		afterSmall := i > 0 && !unicode.IsUpper(runes[i-1])
		beforeSmall := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if unicode.IsUpper(r) && (i == 0 || afterSmall || beforeSmall) {
			words++
		}
	}
	return words
}
