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
	return a.repeat("memory", fullnessSchedule, func(ctx context.Context) error {
		masters, err := store.Fullness(ctx)
		if err != nil {
			masters = nil // no answer is better than an old one, which may be wrong
		}
		a.redis.fullness.Store(&masters)
		return err
	})
}

// masters is how full the masters of Redis are, as far as known.
func (a *App) masters() []redisstore.Fullness {
	if masters := a.redis.fullness.Load(); masters != nil {
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
