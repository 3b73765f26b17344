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
)

func TestEveryPackageHasOnePackageComment(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{}
	shipped := map[string]bool{}
	for _, f := range files(t) {
		if f.generated {
			continue
		}
		shipped[f.pkg.ImportPath] = shipped[f.pkg.ImportPath] || !f.test
	}
	for _, f := range files(t) {
		// A package of nothing but tests carries its comment in one of them.
		if ships, ours := shipped[f.pkg.ImportPath]; !ours || ships == f.test {
			continue
		}
		comments[f.pkg.ImportPath] = append(comments[f.pkg.ImportPath], nil...)
		if f.tree.Doc == nil {
			continue
		}
		comments[f.pkg.ImportPath] = append(comments[f.pkg.ImportPath], f.path)
		if text := f.tree.Doc.Text(); !strings.HasPrefix(text, "Package "+f.tree.Name.Name+" ") &&
			!strings.HasPrefix(text, "Command "+filepath.Base(f.pkg.Dir)+" ") {
			t.Errorf("%s: the package comment must begin with Package %s or Command %s: tools show its first sentence",
				f.path, f.tree.Name.Name, filepath.Base(f.pkg.Dir))
		}
	}
	for path, found := range comments {
		if len(found) != 1 {
			t.Errorf("%s has package comments in %q: there is one, in one file, so that it is found and kept true", path, found)
		}
	}
}

func TestPackageNamesAreSpecific(t *testing.T) {
	t.Parallel()
	vague := []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared", "base", "lib"}
	for _, p := range packages(t) {
		if slices.Contains(vague, p.Name) || slices.Contains(vague, filepath.Base(p.Dir)) {
			t.Errorf("%s: the name says nothing about what is in it, so everything ends up there", p.room())
		}
	}
}

// reserved says where a call may stand in shipped code.
var reserved = []struct {
	path    string
	members []string
	in      []string
	why     string
}{
	{
		"os",
		[]string{"Exit"},
		[]string{
			"cmd/...", "examples/...", "test/withservers", "test/servers", "test/bench", "test/bench/profiled",
			"test/compare/service",
		},
		"only a main ends the process: everywhere else it would jump over what must be closed",
	},
	{
		"log",
		[]string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf"},
		nil,
		"only a main ends the process, and log/slog is the logger",
	},
	{
		"os/signal",
		[]string{"Notify", "NotifyContext", "Ignore"},
		[]string{"internal/cli/...", "dev/story", "cmd/producer-demo", "cmd/consumer-demo", "examples/...", "test/..."},
		"signals are the command line's: all other code ends with its context",
	},
	{
		"net",
		[]string{"LookupHost", "LookupIP", "LookupSRV", "ResolveTCPAddr", "ResolveUDPAddr", "ResolveIPAddr"},
		[]string{"test/..."},
		"a dialer resolves a name for each connection: what the name stands for changes while the process lives",
	},
	{
		"crypto/tls",
		[]string{"LoadX509KeyPair"},
		[]string{"proto/certs/...", "broker/kafka/kafkaconn", "test/..."},
		"a certificate is replaced while the process lives: package certs reads its files again",
	},
	{
		"context",
		[]string{"TO" + "DO"},
		nil,
		"a call that can be waited for takes its caller's context",
	},
}

func TestReservedCalls(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		if f.test {
			continue
		}
		for _, rule := range reserved {
			if in(f.pkg.room(), rule.in) || isGenerator(f) {
				continue
			}
			f.uses(rule.path, rule.members, func(line int, member string) {
				t.Errorf("%s:%d: %s.%s does not belong here: %s", f.path, line, rule.path, member, rule.why)
			})
		}
	}
}

// isGenerator: a program that only go generate runs is a main as well.
func isGenerator(f file) bool {
	return f.tree.Name.Name == "main" && strings.HasPrefix(f.pkg.room(), "internal/")
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
	fileLimits, functionLimits := backlog(t, "files"), backlog(t, "functions")
	var fileLines, functionLines []int
	for _, f := range files(t) {
		if f.test || f.generated {
			continue
		}
		length := f.set.File(f.tree.Pos()).LineCount()
		fileLines = append(fileLines, length)
		fileLimits.hold(t, f.path, float64(length), longestFile, "lines: split the file by its types")
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			length := f.line(function.End()) - f.line(function.Pos()) + 1
			functionLines = append(functionLines, length)
			functionLimits.hold(t, f.path+":"+receiver(function)+function.Name.Name, float64(length), longestFunction,
				"lines: the function does several things")
		}
	}
	fileLimits.finish(t)
	functionLimits.finish(t)
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

// Panics become errors in one place, so that each panic is logged with its stack and counted alike.
func TestOnlyLifecycleRecoversPanics(t *testing.T) {
	t.Parallel()
	limits := backlog(t, "recovers")
	counts, all := map[string]int{}, 0
	for _, f := range files(t) {
		if f.test || f.generated || in(f.pkg.room(), []string{"test/...", "internal/ground/lifecycle"}) {
			continue
		}
		counts[f.pkg.room()] += 0
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); ok && name.Name == "recover" {
				counts[f.pkg.room()]++
				all++
				t.Logf("%s:%d recovers a panic", f.path, f.line(call.Pos()))
			}
			return true
		})
	}
	for room, n := range counts {
		limits.hold(t, room, float64(n), 0, "calls of recover: use lifecycle.Recovered")
	}
	limits.finish(t)
	figure(t, "places that recover a panic, outside internal/ground/lifecycle: %d (aim 0)", all)
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
