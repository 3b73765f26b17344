package app

import (
	"cmp"
	"fmt"

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

// measure is a count of all messages. It does not fall while it is in part, because an outage ends no alert.
type measure[T cmp.Ordered] struct{ last T }

func (m *measure[T]) note(counted T, inPart bool) T {
	if inPart {
		counted = max(counted, m.last)
	}
	m.last = counted
	return counted
}

// silentMasters reports the masters of a Cluster that do not answer.
func (f *findings) silentMasters(silent []redisstore.SilentMaster, shards int) {
	for _, m := range silent {
		f.add(trouble, "redis-master-away",
			fmt.Sprintf("Redis master %s does not answer since %s: %d of %d shards are away: %v",
				cmp.Or(m.Addr, "(none is named)"), clock(m.Since), m.Shards, shards, m.Cause),
			"half messages of these shards get UNAVAILABLE, and their messages wait in Redis; the other shards work",
			"look at the server, or promote one of its replicas (redis-cli cluster failover)")
	}
}
