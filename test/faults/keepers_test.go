package faults

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// keeper is a shop whose markers hold their messages. Its relay sends a message again until the coordinator releases
// the marker, so no operator has to act when Redis forgets.
type keeper struct{ *shop }

// resendAfter is when the relay takes a message for forgotten.
const resendAfter = 3 * time.Second

func keepers(w *world) []user {
	keeps := func(c *sql.Config) { c.Resend = resendAfter }
	all := []user{
		&keeper{newShop(w, "keeper-sqlite", newSQLite(w.t), keeps)},
		&keeper{newShop(w, "keeper-postgresql", newPostgreSQL(w.t), keeps)},
	}
	for _, u := range all {
		u.(*keeper).relay(w)
	}
	return all
}

// relay hands over again until the test ends.
func (k *keeper) relay(w *world) {
	w.t.Helper()
	relay, err := outbox.New(outbox.Config{
		Table: k.store, Sender: outbox.ToCoordinator(k.sdk), Interval: 500 * time.Millisecond, Again: 2 * time.Second,
		Logger: quiet(),
	})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { relay.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

// repeat leaves the repetition to the relay.
func (*keeper) repeat(*testing.T, string, Entry) (unmarked bool) { return false }

// relaysSent demands that messages of each keeper were forgotten, and delivered nevertheless.
func relaysSent(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	for _, u := range l.users {
		k, is := u.(*keeper)
		if !is {
			continue
		}
		forgotten := w.ledger.AcceptedIn(k.name, w.forgot.surely, w.forgot.back)
		t.Logf("%s: %d messages were forgotten with their verdicts, and sent again by its relay", k.name, forgotten)
		if forgotten == 0 {
			t.Errorf("nothing of %s was forgotten", k.name)
		}
	}
}
