package redis_test

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// TestMarkedMessageIsReplayed has a message that was archived before its marker was deleted: delete_business.when
// after_ack.
func TestMarkedMessageIsReplayed(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		m := half("marked")
		create(t, a.store, m)
		claims := submit(t, a.store, m.Name)
		settle(t, a.store, halfmsg.EventCommitted, time.Minute, claims...)
		settle(t, a.store, halfmsg.EventAckedMarked, time.Minute, claims...)
		if a.advance != nil {
			a.advance(time.Second)
		}
		settle(t, a.store, halfmsg.EventMarkerDeleted, 0, claims...)
		replay := halfmsg.Replay{Name: m.Name}
		if r := a.store.Replay(t.Context(), []halfmsg.Replay{replay}, halfmsg.ReplayHow{})[0]; r.Err != nil {
			t.Fatal(r)
		}
	})
}

// TestHistoryBeforeTheEpoch has times that no id of an entry can have.
func TestHistoryBeforeTheEpoch(t *testing.T) {
	t.Parallel()
	onEach(t, kept, func(t *testing.T, a archiving) {
		toDone(t, a.store, half("1"))
		for _, at := range []time.Time{time.UnixMilli(0), time.UnixMilli(-5)} {
			if all := archived(t, a.store, halfmsg.FinishedQuery{Since: at}); len(all) != 1 {
				t.Errorf("since %s: %s", at, ids(all))
			}
			if all := archived(t, a.store, halfmsg.FinishedQuery{Until: at}); len(all) != 0 {
				t.Errorf("until %s: %s", at, ids(all))
			}
		}
	})
}
