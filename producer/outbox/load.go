package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/msghandler/msghandler/producer/marker/sql"
)

// mostHalvings makes one message of any sensible batch.
const mostHalvings = 12

// fit halves the next claims after an error of the database, because a smaller claim may be possible in time, and
// doubles them after each success.
func (r *Relay) fit(err error) {
	if err != nil {
		r.halvings = min(r.halvings+1, mostHalvings)
		return
	}
	r.halvings = max(r.halvings-1, 0)
}

// longer is how much longer than usual the lock of a claim lasts, because of its long content.
func (r *Relay) longer(claim sql.Claim) time.Duration { return max(0, claim.Lock-r.config.Lock) }

// load reads the content of the claimed messages, for a sixth of the lock, and longer where the lock is longer: a
// sender needs time for what was loaded, also when the rest takes too long.
func (r *Relay) load(ctx context.Context, claim sql.Claim) ([]sql.Queued, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Lock/6+r.longer(claim))
	defer cancel()
	return r.config.Table.Load(ctx, claim.Token, claim.Messages)
}

// unloaded are the judgements of messages whose content was not loaded, because of an error.
func (r *Relay) unloaded(claimed []sql.Claimed, loaded []sql.Queued, err error) (all []judgement) {
	if err == nil {
		return nil // the rest was taken by others
	}
	for _, c := range claimed {
		if slices.ContainsFunc(loaded, func(q sql.Queued) bool { return q.Message.ID == c.ID && q.Shard == c.Shard }) {
			continue
		}
		outcome := sql.Outcome{ID: c.ID, Shard: c.Shard, State: sql.StateWaiting, In: r.config.Interval, Unsent: true}
		all = append(all, judgement{Result{Fate: Unreached, Err: err, Unsent: true}, c.ID, outcome})
	}
	return all
}
