package app

import (
	"context"

	"github.com/msghandler/msghandler/internal/console"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// fullnessSchedule is how often the memory of Redis is read.
const fullnessSchedule = "@every 5s"

// watchFullness starts the loop that reads how full the masters of Redis are.
func (a *App) watchFullness(store *redisstore.Store) error {
	a.metrics.StoreMemory(func() (all []console.StoreMemory) {
		for _, m := range a.masters() {
			all = append(all, console.StoreMemory{Server: m.Addr, Used: m.Used, Limit: m.Limit})
		}
		return all
	})
	watch, err := a.newLoop("memory", fullnessSchedule, func(ctx context.Context) (bool, error) {
		masters, err := store.Fullness(ctx)
		// While a master does not answer nothing is told: an old value may be wrong.
		if err != nil {
			masters = nil
		}
		a.fullness.Store(&masters)
		return false, err
	})
	if err != nil {
		return err
	}
	watch.Start()
	return nil
}

// masters is how full the masters of Redis are, as far as known.
func (a *App) masters() []redisstore.Fullness {
	if masters := a.fullness.Load(); masters != nil {
		return *masters
	}
	return nil
}

// fullness reports masters of Redis that are full, or nearly full.
func (f *findings) fullness(masters []redisstore.Fullness) {
	for _, found := range redisstore.FullnessFindings(masters) {
		severity := warning
		if found.Severity == redisstore.Refuse {
			severity = trouble
		}
		f.add(severity, found.Name, found.What, found.Why, found.Remedy)
	}
}
