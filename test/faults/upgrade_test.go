package faults

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// versionBefore is the version before this one: the last release, or what main was before the work on this version. A
// commit that breaks the data or the API on purpose sets it to its own hash, in the commit after.
const versionBefore = "50c3b2017547d79f5214c6b1ec21f2872c96a11a"

// Upgrades.
var upgradeRows = []row{
	{
		name: "F48", short: true, copies: true, leavesMarkers: true, lasting: true,
		world: options{before: func(w *world) { w.options.binary = binaryBefore(w.t) }},
		fault: upgradeAndBack,
	},
}

// binaryBefore builds the coordinator of the version before.
func binaryBefore(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	// A shallow clone may lack the version before: then its oldest commit is the version before.
	const build = `cd ../..
if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
	git cat-file -e "$1" 2>/dev/null || set -- "$(git rev-list --max-parents=0 HEAD | tail -n 1)" "$2"
fi
git archive "$1" | tar -x -C "$2"
cd "$2"
go build -o older ./cmd/msghandler`
	shell := exec.Command("sh", "-ec", build, "sh", versionBefore, tree)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("build the version before, which needs the history of the repository: %v\n%s", err, out)
	}
	return filepath.Join(tree, "older")
}

// upgradeAndBack replaces three coordinators of the version before under load, and goes back to that version. Each
// way kills one coordinator while both versions work.
func upgradeAndBack(ctx context.Context, w *world, _ *rand.Rand) {
	before := w.options.binary
	for _, binary := range []string{"", before} {
		w.options.binary = binary
		w.restart(w.coordinators[0])
		pause(ctx, time.Second)
		w.killAndStart(w.coordinators[1])
		pause(ctx, time.Second)
		w.restart(w.coordinators[2])
	}
}

// killAndStart kills a coordinator, and starts the coordinator again.
func (w *world) killAndStart(c *coordinator) {
	w.t.Helper()
	w.ledger.Fault("SIGKILL to " + c.grpc)
	_ = w.end(c, syscall.SIGKILL)
	w.start(c)
	c.Ready(c.http)
}
