package simulation

import (
	"strings"
	"testing"
)

// TestPlantedDamageTurnsWorldsRed tests the checks of a world: damage of the keys that no fault explains is reported.
func TestPlantedDamageTurnsWorldsRed(t *testing.T) {
	r := Run(t, 1, Options{Messages: 5, Times: 1, Only: []string{"none"}, Judge: func(w *World) {
		_ = w.Redis.mini.Set(keyPrefix+":{00}:orders:m:planted", "half 946684800000 digest {}\nbody")
		w.checking.checkKeys()
	}})
	found := strings.Join(r.Wrong, "\n")
	if want := "orders/planted: it has a record, and neither a cell nor an index entry"; !strings.Contains(found, want) {
		t.Errorf("the world reports %q, want %q", found, want)
	}
}
