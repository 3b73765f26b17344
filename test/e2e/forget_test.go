package e2e

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// Redis is started on files from a moment ago, as after a power cut that took its last writes with it.
func TestRedisRollbackIsReported(t *testing.T) {
	files := t.TempDir()
	w := newWorld(t)
	w.redis = servers.Redis(t, "--dir", files)
	w.startCoordinators(1)
	c := w.coordinators[0]

	w.redis.Stop()
	earlier := t.TempDir()
	copyFiles(t, files, earlier)
	w.redis.Start()
	c.Ready(c.http)
	for range 3 {
		before := w.pulse()
		servers.Eventually(t, patience, "the pulse is counted on", func() bool { return w.pulse() != before })
	}
	if !pageHolds(t, c, "/metrics", "msghandler_store_regressions_total 0") || pageHolds(t, c, "/readyz", "went back") {
		t.Fatal("a restart without a loss was reported as a loss")
	}

	w.redis.Kill()
	if err := os.RemoveAll(files); err != nil {
		t.Fatal(err)
	}
	copyFiles(t, earlier, files)
	w.redis.Start()
	servers.Eventually(t, patience, "the loss is reported", func() bool {
		return pageHolds(t, c, "/readyz", "data rollback detected")
	})
	if pageHolds(t, c, "/metrics", "msghandler_store_regressions_total 0") {
		t.Error("the loss is not in the metrics")
	}
	c.Says("Redis data rollback detected", time.Minute)

	// The rollback is reported, and the work goes on.
	c.Ready(c.http)
	w.startConsumers()
	w.startOrders(w.writeOrders(20)).Ends(patience)
	w.paid(payable(20), patience)
}

// pulse is how far each coordinator has counted in the first shard.
func (w *world) pulse() string { return w.redis.CLI("HGETALL", "msghandler:{00}:pulse") }

// pageHolds says whether a page of the coordinator holds a text.
func pageHolds(t *testing.T, c *coordinator, page, text string) bool {
	t.Helper()
	response, err := http.Get("http://" + c.http + page)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(body), text)
}

func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
