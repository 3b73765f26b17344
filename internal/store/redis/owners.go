package redis

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// ownerSample is about how many leases are looked at to find their holders: enough to find every instance that has a
// share of the work, and too few for Redis to notice.
const ownerSample = 800

// Owners tells which instances work on messages now.
func (s *Store) Owners(ctx context.Context) (halfmsg.Owners, error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(shard, 1)
		calls[i].args = append(calls[i].args, s.perShard(ownerSample))
	}
	run(ctx, s.intake, s.scripts.owners, calls)
	var owners halfmsg.Owners
	found := map[string]*halfmsg.Owner{}
	for _, c := range calls {
		if c.err != nil {
			return halfmsg.Owners{}, c.err
		}
		held, _ := c.answer(0).(int64)
		owners.Held += held
		for i := 1; i+1 < len(c.reply); i += 2 {
			token, _ := c.reply[i].(string)
			until, _ := c.reply[i+1].(int64)
			name := ownerOf(token)
			if found[name] == nil {
				found[name] = &halfmsg.Owner{Instance: name}
			}
			found[name].Leases++
			if at := time.UnixMilli(until); at.After(found[name].Until) {
				found[name].Until = at
			}
		}
	}
	for owner := range maps.Values(found) {
		owners.All = append(owners.All, *owner)
	}
	slices.SortFunc(owners.All, func(a, b halfmsg.Owner) int { return cmp.Compare(a.Instance, b.Instance) })
	return owners, nil
}
