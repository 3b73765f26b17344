package console

import (
	"testing"

	"github.com/msghandler/msghandler/internal/ground/assert"
)

// The metric names what did not hold: a report of the number alone would lead nowhere.
func TestBrokenAssertionsNameTheirRules(t *testing.T) {
	const rule = "this line of a test never runs"
	assert.Unreachable(rule)
	families, err := NewMetrics().registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "msghandler_assertions_broken_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			if metric.GetLabel()[0].GetValue() == rule && metric.GetCounter().GetValue() >= 1 {
				return
			}
		}
	}
	t.Errorf("no series names the rule %q", rule)
}
