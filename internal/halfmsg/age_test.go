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
		claim            halfmsg.Claim
		age, sendableFor time.Duration
	}{
		{halfmsg.Claim{CreatedAt: store, ClaimedAt: store.Add(time.Minute)}, time.Minute, 0},
		{
			halfmsg.Claim{CreatedAt: store, SendableAt: store.Add(time.Second), ClaimedAt: store.Add(time.Minute)},
			time.Minute, 59 * time.Second,
		},
		{halfmsg.Claim{CreatedAt: store}, 0, 0},
		{halfmsg.Claim{CreatedAt: store, SendableAt: time.Now(), ClaimedAt: store}, 0, 0},
	} {
		age, sendableFor := test.claim.Age(), test.claim.SendableFor()
		if age != test.age || sendableFor != test.sendableFor {
			t.Errorf("%+v: %v, %v", test, age, sendableFor)
		}
	}
}
