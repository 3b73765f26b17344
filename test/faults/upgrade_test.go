package faults

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/test/servers"
)

const (
	// lastOfLayout3 is the last version that knows no layout of the data beyond 3.
	lastOfLayout3 = "02a96b6ab610384853e242288db4cd825e1909ef"
	// lastOfLongCells is the last version that pads each cell without an owner, and takes a short one for owned.
	lastOfLongCells = "fe246d962817b4cda9bf90efd43caf7ac1f894d5"
	// versionBefore is the version before this one: the last release, or what main was before the work on this version.
	versionBefore = "11b745bde717bdc11819562fdb9459f04091abe2"
)

// Upgrades.
var upgradeRows = []row{
	{
		name: "F48_before", short: true, copies: true, leavesMarkers: true, lasting: true,
		world: options{before: func(w *world) { w.options.binary = olderBinary(w.t, versionBefore) }},
		fault: upgradeFromBefore,
	},
	{
		name: "F48", copies: true, leavesMarkers: true, lasting: true,
		world: options{before: func(w *world) { w.options.binary = olderBinary(w.t, lastOfLayout3) }},
		fault: upgradeAndBack,
	},
	{
		name: "F48_cells", copies: true, leavesMarkers: true, lasting: true,
		world: options{before: func(w *world) { w.options.binary = olderBinary(w.t, lastOfLongCells) }},
		fault: upgradeCellsAndBack,
	},
}

// olderBinary builds the coordinator of an older version.
func olderBinary(t *testing.T, commit string) string {
	t.Helper()
	tree := t.TempDir()
	// A shallow clone may lack the version before: then its oldest commit is the version before. Rows about a certain
	// older version fail there.
	const build = `cd ../..
if [ "$1" = "$3" ] && [ "$(git rev-parse --is-shallow-repository)" = true ]; then
	git cat-file -e "$1" 2>/dev/null || set -- "$(git rev-list --max-parents=0 HEAD | tail -n 1)" "$2"
fi
git archive "$1" | tar -x -C "$2"
cd "$2"
go build -o older ./cmd/msghandler`
	shell := exec.Command("sh", "-ec", build, "sh", commit, tree, versionBefore)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("build the version before, which needs the history of the repository: %v\n%s", err, out)
	}
	return filepath.Join(tree, "older")
}

// upgradeAndBack replaces three coordinators of an older version under load, with kills, and goes back to the older
// version.
func upgradeAndBack(ctx context.Context, w *world, _ *rand.Rand) {
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr})
	defer client.Close()
	older := w.options.binary
	w.options.binary = ""
	first := w.coordinators[0]
	pause(ctx, time.Second)
	w.restart(first)
	w.killAndStart(first)
	pause(ctx, 2*time.Second) // both versions work on the same messages
	w.layoutIs(client, "3")
	w.restart(w.coordinators[1])
	w.restart(w.coordinators[2])

	servers.Eventually(w.t, patience, "the data have layout 4, since no older version is left", func() bool {
		return client.HGet(w.t.Context(), "msghandler:meta", "layout").Val() == "4"
	})
	w.paged(client, true)
	w.killAndStart(w.coordinators[1])
	pause(ctx, 3*time.Second)

	w.options.settings = append(w.options.settings, "MSGHANDLER_REDIS_LAYOUT=3")
	rollCoordinators(ctx, w, nil)
	servers.Eventually(w.t, patience, "the data have layout 3, since no message is paged any more", func() bool {
		return client.HGet(w.t.Context(), "msghandler:meta", "layout").Val() == "3"
	})
	w.paged(client, false)
	w.options.settings, w.options.binary = w.options.settings[:len(w.options.settings)-1], older
	w.restart(w.coordinators[2])
	w.killAndStart(w.coordinators[2])
	pause(ctx, 2*time.Second)
	w.restart(first)
	w.restart(w.coordinators[1])
	pause(ctx, 2*time.Second)
}

// upgradeCellsAndBack replaces three coordinators of an older version of the same layout under load, with kills, and
// goes back to the older version. In between, both versions work on the same cells.
func upgradeCellsAndBack(ctx context.Context, w *world, _ *rand.Rand) {
	older := w.options.binary
	for _, binary := range []string{"", older} {
		w.options.binary = binary
		for _, c := range w.coordinators {
			w.restart(c)
			pause(ctx, 2*time.Second)
			w.killAndStart(c)
			pause(ctx, time.Second)
		}
	}
}

// upgradeFromBefore replaces three coordinators of the version before under load, and goes back to that version. Each
// way kills one coordinator while both versions work.
func upgradeFromBefore(ctx context.Context, w *world, _ *rand.Rand) {
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
	w.ready(c)
}

func (w *world) layoutIs(client *redis.Client, want string) {
	w.t.Helper()
	if got := client.HGet(w.t.Context(), "msghandler:meta", "layout").Val(); got != want {
		w.t.Errorf("the data have layout %s, want %s", got, want)
	}
}

// paged waits until messages are paged, or until none is.
func (w *world) paged(client *redis.Client, want bool) {
	w.t.Helper()
	servers.Eventually(w.t, patience, "messages are paged: "+strconv.FormatBool(want), func() bool {
		cells, err := client.Keys(w.t.Context(), "*:cells").Result()
		return err == nil && len(cells) > 0 == want
	})
}
