// Package drill breaks a real installation in many ways, measures how long it takes until an operator is told, and
// repairs each incident with the commands of docs/reference/alerts.md.
package drill

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

var (
	drill = flag.Bool("drill", false, "run the incidents, and not only compare them with the runbook (over 11 minutes)")
	only  = flag.String("incident", "", "run the incidents whose name has one of these texts, with commas between")
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	os.Exit(programs.Main(m, "msghandler"))
}

const (
	// soon is within what time each signal must come, and patience how long the drill waits for the end of all.
	soon     = 30 * time.Second
	patience = 5 * time.Minute
	// loopSoon and loopPatience are the same for a crash loop: three starts take a while, and count for ten minutes.
	loopSoon     = 2 * time.Minute
	loopPatience = 12 * time.Minute
)

// TestDrill has the commands from docs/reference/alerts.md. Without -drill it demands only that each incident has
// commands there which the drill knows.
func TestDrill(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []row
	var w *world
	if *drill {
		w = newWorld(t)
	}
	for _, i := range incidents {
		commands, err := runbookOf(string(page), i.runbook, i.block)
		if err != nil {
			t.Errorf("%s: %v", i.name, err)
		}
		if w != nil && err == nil && wanted(i.name) {
			rows = append(rows, w.play(i, commands))
		}
	}
	if w != nil {
		w.endsWell(rows)
	}
}

// wanted says whether the incident is to be run.
func wanted(name string) bool {
	return slices.ContainsFunc(strings.Split(*only, ","), func(text string) bool { return strings.Contains(name, text) })
}
