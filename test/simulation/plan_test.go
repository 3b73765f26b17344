package simulation

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"testing"

	"github.com/msghandler/msghandler/test/simulation/replay"
)

var (
	planFlag   = flag.String("plan", "", "the plan of TestPlan, in JSON")
	eventsFlag = flag.String("events", "", "the file that TestPlan writes the events of connections to")
)

// TestPlan is what the processes of make simulate run.
func TestPlan(t *testing.T) {
	if *planFlag == "" {
		return
	}
	var p replay.Plan
	if err := json.Unmarshal([]byte(*planFlag), &p); err != nil {
		t.Fatal(err)
	}
	trace := fnv.New64a()
	var events bytes.Buffer
	o := play(t, p, func(e Event) {
		_, _ = fmt.Fprintln(trace, e)
		if *eventsFlag != "" {
			_, _ = fmt.Fprintln(&events, e)
		}
	})
	if *eventsFlag != "" {
		if err := os.WriteFile(*eventsFlag, events.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Trace = trace.Sum64()
	line, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(os.Stdout, "\n%s%s\n", replay.Prefix, line)
}

func play(t *testing.T, p replay.Plan, watch func(e Event)) replay.Outcome {
	t.Helper()
	order := p.Order
	if order == 0 {
		order = p.Seed
	}
	replay.SeedBubbles(order)
	o := Options{Small: p.Small, Without: p.Without, Messages: p.Messages, Nodes: p.Nodes, Strikes: p.Strikes}
	if *showLog {
		o.Log = os.Stderr
	}
	if watch != nil {
		o.Prepare = func(w *World) { w.Network.Watch(watch) }
	}
	r := Run(t, p.Seed, o)
	return replay.Outcome{
		Wrong: r.Wrong, Kinds: r.Faults, Strikes: r.Strikes, Events: r.Events, Messages: r.Messages, Copies: r.Copies,
		Simulated: r.Simulated, Coverage: r.Coverage, Log: r.Log,
	}
}
