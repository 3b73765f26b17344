package app

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/msghandler/msghandler/internal/cause"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// silentMasters are the masters of a Cluster that do not answer, and in how many shards the data are.
func (a *App) silentMasters() (silent []redisstore.SilentMaster, shards int) {
	if store := a.store.Load(); store != nil {
		return store.SilentMasters(), store.Shards()
	}
	return nil, 0
}

// inPart says that counts of all messages leave shards out, because their master does not answer.
func (a *App) inPart() bool {
	silent, _ := a.silentMasters()
	return len(silent) > 0
}

// heldCounts are counts of all messages, by names. None falls while shards are left out, because an outage ends no
// alert. The zero value has counted nothing. A heldCounts is safe for concurrent use.
type heldCounts[T cmp.Ordered] struct{ last atomic.Pointer[map[string]T] }

// note replaces the counts. inPart says that shards are left out.
func (h *heldCounts[T]) note(counts map[string]T, inPart bool) {
	if inPart {
		for name, before := range h.all() {
			counts[name] = max(counts[name], before)
		}
	}
	h.last.Store(&counts)
}

// noteOne replaces the only count, and returns the count that holds.
func (h *heldCounts[T]) noteOne(counted T, inPart bool) T {
	h.note(map[string]T{"": counted}, inPart)
	return h.all()[""]
}

// all are the counts that hold.
func (h *heldCounts[T]) all() map[string]T {
	if counts := h.last.Load(); counts != nil {
		return *counts
	}
	return nil
}

// silentMasters reports the masters of a Cluster that do not answer.
func (f *findings) silentMasters(silent []redisstore.SilentMaster, shards int) {
	for _, m := range silent {
		of := cause.RedisMasterAway
		f.add(trouble, of.Name,
			fmt.Sprintf("Redis master %s does not answer since %s: %d of %d shards are away: %v",
				cmp.Or(m.Addr, "(none is named)"), clock(m.Since), m.Shards, shards, m.Cause),
			of.Why, of.Remedy)
	}
}
