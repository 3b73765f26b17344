package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/test/faults"
)

// everyProducer draws all producers, and else what the seed draws.
type everyProducer struct{ Choices }

func (e everyProducer) Intn(what string, n int) int {
	if strings.HasPrefix(what, "has producer ") {
		return 0
	}
	return e.Choices.Intn(what, n)
}

// Without faults each kind of producer has messages that arrive and messages that do not, and each that arrives has its
// effect once.
func TestEachProducerDelivers(t *testing.T) {
	arrived := map[string]int{}
	r := Run(t, 1, Options{
		Choices: everyProducer{NewChoices(1)}, Only: []string{"none"}, Messages: 90, Times: 1,
		Judge: func(w *World) {
			for _, p := range w.producers {
				for _, copies := range w.Ledger.Copies(p.name()) {
					arrived[p.name()] += min(1, len(copies))
				}
			}
			if effects := len(w.effects.counts()); effects != w.Ledger.DeliveredIDs() {
				w.report("%d messages have had an effect, and %d came", effects, w.Ledger.DeliveredIDs())
			}
		},
	})
	for _, kind := range append(slices.Clone(kinds), insertingName) {
		if n := arrived[kind]; n == 0 || n >= 15 {
			t.Errorf("of 15 messages of %s %d arrived", kind, n)
		}
	}
	if len(r.Wrong) > 0 {
		t.Errorf("%q\n%s", r.Wrong, r.Log)
	}
}

// The ledger gets the end of a business from the rows of its database alone: when an order commits beside a tombstone,
// the world says so.
func TestOrderBesideTombstoneIsContradiction(t *testing.T) {
	r := Run(t, 1, Options{
		Only: []string{"none"}, Messages: 1, Times: 1,
		Judge: func(w *World) {
			d, err := w.newSQLData("wrong", false)
			if err != nil {
				w.report("%v", err)
				return
			}
			w.Ledger.Decide("wrong/1", faults.RolledBack)
			db := d.data.server.Open()
			defer db.Close()
			_, err = db.ExecContext(w.life, "INSERT INTO orders (producer, id) VALUES ('wrong', '1')")
			if err != nil {
				w.report("%v", err)
			}
		},
	})
	if len(r.Wrong) != 1 || !strings.HasPrefix(r.Wrong[0], "CONTRADICTION wrong/1") {
		t.Errorf("the world reports %q", r.Wrong)
	}
}
