package random

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/storekeys"
)

// most is how many sequences a known defect may survive.
const most = 1000

// defects are known mistakes of such systems, each with the words by which the checks must find the mistake.
var defects = map[string]struct {
	defect
	found string
}{
	"a return taken as acknowledged": {
		defect{publisher: func(p halfmsg.Publisher) halfmsg.Publisher { return returnsIgnored{p} }},
		"the broker has not acknowledged it",
	},
	"no attempt in the header": {
		defect{publisher: func(p halfmsg.Publisher) halfmsg.Publisher { return noAttempt{p} }},
		"attempt 1 is published after attempt 1",
	},
	"UNKNOWN at the limit taken as ROLLED_BACK": {
		defect{store: func(_ *miniredis.Miniredis, s store) store { return impatient{s} }},
		"given_up leads to rolled_back",
	},
	"no token on writes": {
		defect{store: func(server *miniredis.Miniredis, s store) store { return noToken{s, server} }},
		"which has no right to it",
	},
	"a repeated SendHalfMessage overwrites": {
		defect{store: func(_ *miniredis.Miniredis, s store) store { return overwrites{s} }},
		"other content is answered with pending, <nil>",
	},
	"a Submit believed without Confirm": {
		defect{believed: true},
		"COMMITTED is stored without a source",
	},
	"ordering keys forgotten": {
		defect{store: func(_ *miniredis.Miniredis, s store) store { return forgetsKeys{s} }},
		"that it waits for its turn is false",
	},
	"a successor due when its predecessor is claimed": {
		defect{store: func(server *miniredis.Miniredis, s store) store { return hasty{store: s, server: server} }},
		"that it is the first of its chain is false",
	},
	"a lost lease frees a successor": {
		defect{store: func(server *miniredis.Miniredis, s store) store {
			return hasty{store: s, server: server, afterLoss: true}
		}},
		"that it is the first of its chain is false",
	},
	"a trusted Submit that is only remembered": {
		defect{store: func(_ *miniredis.Miniredis, s store) store { return remembers{s} }},
		"trusted submit is answered with pending",
	},
}

// TestKnownDefectsAreFound tests the tests: each defect, switched in, must be found by its own check.
func TestKnownDefectsAreFound(t *testing.T) {
	for name, d := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lab, examples := newLab(t, d.defect), sequences()
			for seed := range most {
				if wrong := lab.run(t, examples.Example(seed), seed%2 == 1); strings.Contains(wrong, d.found) {
					t.Logf("found by sequence %d: %s", seed, wrong)
					return
				}
			}
			t.Errorf("not found in %d sequences", most)
		})
	}
}

// returnsIgnored takes a refusal for an acknowledgement.
type returnsIgnored struct{ halfmsg.Publisher }

func (p returnsIgnored) Publish(ctx context.Context, batch []halfmsg.Publishing, answered answered) {
	p.Publisher.Publish(ctx, batch, func(places []int, results []halfmsg.PublishResult) {
		for i := range results {
			if results[i].Outcome == halfmsg.Refused {
				results[i] = halfmsg.PublishResult{Outcome: halfmsg.Acked}
			}
		}
		answered(places, results)
	})
}

// answered receives a publisher's outcomes.
type answered = func(places []int, results []halfmsg.PublishResult)

// noAttempt publishes every copy as if the copy were the first.
type noAttempt struct{ halfmsg.Publisher }

func (p noAttempt) Publish(ctx context.Context, batch []halfmsg.Publishing, answered answered) {
	for i := range batch {
		batch[i].Attempt = 1
	}
	p.Publisher.Publish(ctx, batch, answered)
}

// impatient removes messages without a verdict.
type impatient struct{ store }

func (s impatient) Settle(ctx context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	changed := append([]halfmsg.Settlement(nil), settlements...)
	for i := range changed {
		if changed[i].Event == halfmsg.EventGivenUp {
			changed[i].Event = halfmsg.EventRolledBack
		}
	}
	return s.store.Settle(ctx, changed)
}

// noToken lets anybody settle another's message.
type noToken struct {
	store
	server *miniredis.Miniredis
}

func (s noToken) Settle(ctx context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	changed := append([]halfmsg.Settlement(nil), settlements...)
	for i := range changed {
		if m := storekeys.Read(s.server, prefix).Messages[changed[i].Name.String()]; m != nil {
			changed[i].Token = halfmsg.Token(m.Owner())
		}
	}
	return s.store.Settle(ctx, changed)
}

// remembers leaves the knowledge that a Submit is the verdict to the coordinator that claims the message.
type remembers struct{ store }

func (s remembers) SubmitTrusted(ctx context.Context, names []halfmsg.Name, lease time.Duration) []halfmsg.Submitted {
	return s.Submit(ctx, names, lease)
}

// overwrites keeps the last content rather than the first.
type overwrites struct{ store }

func (s overwrites) Create(ctx context.Context, messages []halfmsg.Message) []halfmsg.Result {
	results := s.store.Create(ctx, messages)
	for i, m := range messages {
		if errors.Is(results[i].Err, halfmsg.ErrExists) && results[i].State == halfmsg.Pending {
			s.Discard(ctx, []halfmsg.Name{m.Name}, halfmsg.Pending)
			results[i] = s.store.Create(ctx, []halfmsg.Message{m})[0]
		}
	}
	return results
}

// forgetsKeys stores messages without their ordering keys.
type forgetsKeys struct{ store }

func (s forgetsKeys) Create(ctx context.Context, messages []halfmsg.Message) []halfmsg.Result {
	changed := append([]halfmsg.Message(nil), messages...)
	for i := range changed {
		changed[i].OrderingKey = ""
	}
	return s.store.Create(ctx, changed)
}

// hasty makes the successors of claimed messages due: of all, or of those whose owner has lost the lease.
type hasty struct {
	store
	server    *miniredis.Miniredis
	afterLoss bool
}

func (s hasty) ClaimSendable(
	ctx context.Context, limit int, lease time.Duration, brokers ...string,
) ([]halfmsg.Claim, error) {
	claims, err := s.store.ClaimSendable(ctx, limit, lease, brokers...)
	for _, claim := range claims {
		if claim.OrderingKey == "" || s.afterLoss && claim.Copies == 0 {
			continue
		}
		index := prefix + ":{00}:" + claim.Producer + ":sendable"
		waiting, _ := s.server.SortedSet(index)
		for id, due := range waiting {
			if id != claim.ID && due >= 1<<52-1 {
				_, _ = s.server.ZAdd(index, 0, id)
			}
		}
	}
	return claims, err
}
