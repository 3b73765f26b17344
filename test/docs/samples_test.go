package docs

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// samples are the programs of examples/quickstart, a module of its own. Pages run them as a reader does: built.
var samples = []string{"shop", "shipping", "books"}

// installSamples builds the samples into a directory of the PATH, where a block runs one of them.
func installSamples(t *testing.T, dir string, blocks []*block) {
	t.Helper()
	if !slices.ContainsFunc(blocks, runsSample) {
		return
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "./examples/quickstart/...")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build examples/quickstart: %v\n%s", err, out)
	}
}

// runsSample reports whether a line of the block begins with a sample.
func runsSample(b *block) bool {
	return slices.ContainsFunc(b.lines, func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return slices.Contains(samples, name)
	})
}
