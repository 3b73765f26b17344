// Package drill breaks a real installation in six ways, measures how long it takes until an operator is told, and
// repairs each incident with the commands of docs/reference/alerts.md.
package drill

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/programs"
)

var (
	drill = flag.Bool("drill", false, "run the incidents, and not only compare them with the runbook (11 minutes)")
	only  = flag.String("incident", "", "run the incidents whose name has this text")
)

func TestMain(m *testing.M) { os.Exit(programs.Main(m, "msghandler")) }

const (
	// soon is within what time each signal must come, and patience how long the drill waits for the end of all.
	soon     = 30 * time.Second
	patience = 5 * time.Minute
	// loopSoon and loopPatience are the same for a crash loop: three starts take a while, and count for ten minutes.
	loopSoon     = 2 * time.Minute
	loopPatience = 12 * time.Minute
)

// incident is something that goes wrong.
type incident struct {
	name string
	// breaks causes the incident.
	breaks func(w *world)
	// goesOn is called again and again until the incident is repaired. May be nil.
	goesOn func(w *world)
	// console is a text of the overview, finding a finding of the doctor, and alerts must fire.
	console, finding string
	alerts           []string
	// runbook is the alert whose commands repair the incident, and block which of its blocks.
	runbook string
	block   int
	// words are the placeholders of the commands.
	words func(w *world) []string
	// soon and patience are the limits of the incident, where they differ.
	soon, patience time.Duration
}

// incidents in this order: the signals of the crash loop end while the others run.
var incidents = []incident{
	{
		name: "crash loop", breaks: (*world).crashAgainAndAgain, goesOn: (*world).order,
		console: "start again and again", finding: "coordinators-restarting", alerts: []string{"MsghandlerRestarting"},
		runbook: "MsghandlerRestarting", soon: loopSoon, patience: loopPatience,
	},
	{
		name: "producer gone", breaks: (*world).stopProducer,
		console: "orders cannot be reached", finding: "messages-unanswered", alerts: []string{"MsghandlerProducerAway"},
		runbook: "MsghandlerProducerAway", words: func(*world) []string { return []string{"PRODUCER", "orders"} },
	},
	{
		name: "queue unbound", breaks: (*world).unbind, goesOn: (*world).order,
		console: "does not take messages", finding: "refused-no-route", alerts: []string{"MsghandlerRefused"},
		runbook: "MsghandlerRefused",
		words:   func(*world) []string { return []string{"NAME", exchange, "QUEUE", queue, "KEY", key} },
	},
	{
		name: "Redis full", breaks: (*world).fillRedis, goesOn: (*world).order,
		console: "of maxmemory", finding: "redis-full",
		alerts:  []string{"MsghandlerRedisMemory", "MsghandlerRedisRefuses"},
		runbook: "MsghandlerRedisFull", words: func(w *world) []string { return []string{"URL", w.redis.URL()} },
	},
	{
		name: "memory alarm", breaks: (*world).alarm, goesOn: (*world).order,
		console: "rabbitmq: ", finding: "rabbitmq-alarm", alerts: []string{"MsghandlerBrokerAway"},
		runbook: "MsghandlerBrokerAway",
	},
	{
		name: "producer moved", breaks: (*world).moveProducer,
		console: "stock cannot be reached", finding: "messages-unanswered", alerts: []string{"MsghandlerProducerAway"},
		runbook: "MsghandlerProducerAway", block: 1,
		words: func(w *world) []string { return []string{"OLD", w.oldStock, "NEW", w.stock.addr} },
	},
}

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
		if w != nil && !t.Failed() && strings.Contains(i.name, *only) {
			rows = append(rows, w.play(i, commands))
		}
	}
	if w != nil {
		w.endsWell(rows)
	}
}
