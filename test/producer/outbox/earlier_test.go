package outbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/msghandlertest"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// A standby that lagged when it was promoted has not heard that the row was claimed and sent.
func TestLaggingStandbyMakesFlaggedCopies(t *testing.T) {
	t.Parallel()
	db := openDB(t, "sqlite", second(sqlite(t)))
	s, to := table(t, db, sqlmarker.SQLite), &sent{}
	commit(t, db, s, "1")
	r := relay(t, s, to, nil)
	for range 3 {
		if _, err := r.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := db.ExecContext(t.Context(), `UPDATE msghandler_markers
			SET state = 1, claims = 0, due_at = 0, owner = NULL, lock_until = NULL, sent_at = NULL, cleaned_at = NULL`)
		if err != nil {
			t.Fatal(err)
		}
	}
	if claims := to.of("1"); !slices.Equal(claims, []int{1, 2, 3}) {
		t.Errorf("the copies have the numbers %v", claims)
	}
}

// The coordinator has forgotten the message after done.retention, and its DeleteBusiness was lost.
func TestRowAfterRetentionIsFlagged(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	db := openDB(t, "sqlite", second(sqlite(t)))
	s := table(t, db, sqlmarker.SQLite)
	p := c.Producer(t, producer.Config{Name: "orders", Markers: s})
	commit(t, db, s, "1")
	r := relay(t, s, outbox.ToCoordinator(p), nil)
	for attempt := range 3 {
		if _, err := r.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Wait(t, func(m msghandlertest.Message) bool { return m.ID == "1" && m.Attempt > attempt })
		servers.Eventually(t, time.Minute, "the marker is deleted", func() bool { return counts(t, s).Sent == 1 })
		c.Advance(20 * time.Minute)
		_, err := db.ExecContext(t.Context(), `UPDATE msghandler_markers SET state = 2, due_at = 0, cleaned_at = NULL`)
		if err != nil {
			t.Fatal(err)
		}
	}
}
