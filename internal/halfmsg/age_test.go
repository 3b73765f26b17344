package halfmsg_test

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The store's clock is a year away from this process's.
func TestAgeComparesNoTwoClocks(t *testing.T) {
	store := time.Now().AddDate(-1, 0, 0)
	for _, test := range []struct {
		claim       halfmsg.Claim
		age, dueFor time.Duration
	}{
		{halfmsg.Claim{CreatedAt: store, ClaimedAt: store.Add(time.Minute)}, time.Minute, 0},
		{
			halfmsg.Claim{CreatedAt: store, SendableAt: store.Add(time.Second), ClaimedAt: store.Add(time.Minute)},
			time.Minute, 59 * time.Second,
		},
		{halfmsg.Claim{CreatedAt: store}, 0, 0},
		{halfmsg.Claim{CreatedAt: store, SendableAt: time.Now(), ClaimedAt: store}, 0, 0},
	} {
		age, dueFor := test.claim.Age(), test.claim.DueFor()
		if age != test.age || dueFor != test.dueFor {
			t.Errorf("%+v: %v, %v", test, age, dueFor)
		}
	}
}

func TestDueTimeFollowsTheDelay(t *testing.T) {
	t.Parallel()
	verdict := time.UnixMilli(1_700_000_000_123)
	const delay, long = time.Hour, 30 * 24 * time.Hour
	message := func(delay time.Duration, replayed bool) halfmsg.Message {
		return halfmsg.Message{Delay: delay, Replayed: replayed}
	}
	for name, test := range map[string]struct {
		message halfmsg.Message
		sendable, claimed,
		due time.Time
	}{
		"pending":             {message(delay, false), time.Time{}, verdict, time.Time{}},
		"at once":             {message(0, false), verdict, verdict, verdict},
		"as of a coordinator": {message(0, false), verdict, time.Time{}, verdict},
		"late":                {message(0, false), verdict, verdict.Add(long), verdict},
		"delayed":             {message(delay, false), verdict, verdict.Add(delay), verdict.Add(delay)},
		"delayed and late":    {message(delay, false), verdict, verdict.Add(long), verdict.Add(delay)},
		"retried early":       {message(delay, false), verdict, verdict.Add(time.Minute), verdict.Add(time.Minute)},
		"replay":              {message(delay, true), verdict, verdict.Add(long), verdict},
	} {
		claim := halfmsg.Claim{Message: test.message, SendableAt: test.sendable, ClaimedAt: test.claimed}
		if got := claim.DueAt(); !got.Equal(test.due) {
			t.Errorf("%s: due at %v, want %v", name, got, test.due)
		}
	}
}
