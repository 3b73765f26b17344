package outbox

import "github.com/msghandler/msghandler/producer/marker/sql"

// departedMessages is how many messages a relay remembers at least: more than a standby may lag behind its primary.
const departedMessages = 10_000

// departed remembers which messages may have left, and with how many claims. A database that fails over to a lagging
// standby offers some of them once more, and its claims are the old ones.
type departed struct{ newer, older map[place]int }

type place struct {
	shard int
	id    string
}

func placeOf(q sql.Queued) place { return place{q.Shard, q.Message.ID} }

// note remembers a message, and forgets the oldest half when there are too many.
func (d *departed) note(q sql.Queued) {
	if d.newer == nil || len(d.newer) >= departedMessages {
		d.newer, d.older = make(map[place]int), d.newer
	}
	d.newer[placeOf(q)] = q.Claims
}

// recount raises the claims of messages that have left before with as many.
func (d *departed) recount(messages []sql.Queued) {
	for i := range messages {
		at := placeOf(messages[i])
		messages[i].Claims = max(messages[i].Claims, d.newer[at]+1, d.older[at]+1)
	}
}
