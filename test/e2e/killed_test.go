package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// A coordinator that dies again and again loses nothing, and its operators must see the deaths nevertheless: in the
// logs of the other coordinators, in the metrics, on the console and from the doctor. A clean stop is not reported.
func TestRepeatedKillsAreReported(t *testing.T) {
	w := newWorld(t)
	w.redis.CLI("CONFIG", "SET", "appendfsync", "always")
	w.startCoordinators(2)
	watcher, victim := w.coordinators[0], w.coordinators[1]
	victim.Stop(30 * time.Second)
	for range 6 {
		w.restart(victim)
		victim.Ready(victim.http)
		victim.Kill()
	}
	w.restart(victim)
	victim.Ready(victim.http)
	for _, c := range w.coordinators {
		servers.Eventually(t, time.Minute, "the metrics count six", func() bool {
			return pageHolds(t, c, "/metrics", "msghandler_unclean_ends 6\n")
		})
		if !pageHolds(t, c, "/", "ended without a clean stop: 6 within the last hour") ||
			!pageHolds(t, c, "/", "Something is wrong") {
			t.Error("the console does not show the message")
		}
	}
	servers.Eventually(t, time.Minute, "a coordinator logs the ends", func() bool {
		const line = "coordinators ended without a clean stop"
		return watcher.HasSaid(line) || victim.HasSaid(line)
	})
	p := newPlainProducer(t, "honest", watcher.grpc, func(p *plainProducer) { p.confirm = unknown })
	said, status := w.examine(p)
	if status != 1 || !strings.Contains(said, "coordinators-unclean-end") ||
		!strings.Contains(said, "6 in the last ten minutes") {
		t.Errorf("the doctor says (%d):\n%s", status, said)
	}
	shown, status := programs.Run(t, "msghandler", []string{"MSGHANDLER_SERVER=" + watcher.grpc}, "stats")
	if status != 0 || !strings.Contains(shown, "coordinators-unclean-end") {
		t.Errorf("stats says (%d):\n%s", status, shown)
	}
}
