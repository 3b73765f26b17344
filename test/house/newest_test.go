package house

import (
	"go/ast"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Tests of test/e2e that start, stop or kill a server themselves depend on the server's version, so these tests run on
// the newest servers too. scripts/test-newest.sh lists them, with tests about a server's own answers.
func TestNewestServersAreHurtToo(t *testing.T) {
	t.Parallel()
	listed := newestList(t)
	hurting := hurtingTests(t)
	const few = 4 // fewer mean that this test has lost sight of them
	if len(hurting) < few {
		t.Fatalf("found only %q", hurting)
	}
	for _, name := range hurting {
		if !slices.Contains(listed, name) {
			t.Errorf("%s starts, stops or kills a server: add it to the list in scripts/test-newest.sh", name)
		}
	}
	known := testNames(t)
	for _, name := range listed {
		if !slices.Contains(known, name) {
			t.Errorf("scripts/test-newest.sh lists %s, and there is no such test", name)
		}
	}
}

// newestList are the tests of test/e2e that run on the newest servers.
func newestList(t *testing.T) (names []string) {
	t.Helper()
	text := read(t, filepath.Join("..", "..", "scripts", "test-newest.sh"))
	var pattern strings.Builder
	for _, part := range regexp.MustCompile(`(?m)^e2e\+?='([^']*)'$`).FindAllStringSubmatch(text, -1) {
		pattern.WriteString(part[1])
	}
	list, ok := strings.CutPrefix(pattern.String(), "^Test(")
	list, ended := strings.CutSuffix(list, ")$")
	if !ok || !ended {
		t.Fatalf("the list in scripts/test-newest.sh is %q", &pattern)
	}
	for name := range strings.SplitSeq(list, "|") {
		names = append(names, "Test"+name)
	}
	return names
}

// hurtable are the functions of test/servers that start a server of a test's own, to be hurt; hurts are the methods
// that hurt a server.
var (
	hurtable = []string{"PrivateRabbitMQ", "RabbitCluster", "RedisCluster", "Replica", "Sentinel"}
	hurts    = []string{"Stop", "Start", "Kill", "Freeze", "Thaw", "FillDisk"}
)

// hurtingTests are the tests of test/e2e that hurt a server, themselves or through functions of their package.
func hurtingTests(t *testing.T) (names []string) {
	t.Helper()
	calls, hurting := map[string][]string{}, map[string]bool{}
	for _, f := range files(t) {
		if !strings.Contains(f.path, "test/e2e/") {
			continue
		}
		for _, declaration := range f.tree.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || function.Body == nil {
				continue
			}
			name := function.Name.Name
			ast.Inspect(function.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.Ident:
					calls[name] = append(calls[name], n.Name)
				case *ast.SelectorExpr:
					hurting[name] = hurting[name] || hurtsServer(n)
				}
				return true
			})
		}
	}
	for more := true; more; {
		more = false
		for name, called := range calls {
			if !hurting[name] && slices.ContainsFunc(called, func(other string) bool { return hurting[other] }) {
				hurting[name], more = true, true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(hurting)) {
		if hurting[name] && strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	return names
}

// hurtsServer says whether an expression is servers.PrivateRabbitMQ or the like, or such as w.redis.Kill.
func hurtsServer(s *ast.SelectorExpr) bool {
	switch of := s.X.(type) {
	case *ast.Ident:
		return of.Name == "servers" && slices.Contains(hurtable, s.Sel.Name)
	case *ast.SelectorExpr:
		return of.Sel.Name == "redis" && slices.Contains(hurts, s.Sel.Name)
	}
	return false
}
