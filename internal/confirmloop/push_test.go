package confirmloop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/halfmsg/owner"
)

func TestWhoWasNotAskedAboutAloneGoesFirst(t *testing.T) {
	c := &Confirmer{}
	l := &lane{laneKey: laneKey{use: doubtful}, producer: &producer{}, suspects: suspects{"failed": true, "fresh": false}}
	for _, id := range []string{"failed", "fresh"} {
		name := halfmsg.Name{Producer: "orders", ID: id}
		c.push(l, owner.Held{Claim: halfmsg.Claim{Message: halfmsg.Message{Name: name}}})
	}
	if l.queue[0].ID != "fresh" || l.queue[1].ID != "failed" {
		t.Errorf("first %s, then %s", l.queue[0].Name, l.queue[1].Name)
	}
}

// The newest is the likeliest to have come upon suspects that were there before.
func TestTheNewestSuspectGoesFirst(t *testing.T) {
	c := &Confirmer{}
	l := &lane{laneKey: laneKey{use: doubtful}, producer: &producer{}, suspects: suspects{"failed": true}}
	now := time.Now()
	for id, age := range map[string]time.Duration{"failed": 0, "old": time.Hour, "new": time.Second, "between": time.Minute} {
		name := halfmsg.Name{Producer: "orders", ID: id}
		c.push(l, owner.Held{Claim: halfmsg.Claim{Message: halfmsg.Message{Name: name}, CreatedAt: now.Add(-age)}})
	}
	var ids []string
	for _, h := range l.queue {
		ids = append(ids, h.ID)
	}
	if want := []string{"new", "between", "old", "failed"}; !slices.Equal(ids, want) {
		t.Errorf("they stand as %v, want %v", ids, want)
	}
}

func TestSuspectsAreBounded(t *testing.T) {
	s := suspects{}
	for i := range maxSuspects + 10 {
		id := fmt.Sprint(i)
		s.add(id, i%2 == 0)
		s.add(id, false)
		if alone, known := s[id]; !known || alone != (i%2 == 0) {
			t.Fatalf("%s: known %t, failed alone %t", id, known, alone)
		}
	}
	if len(s) != maxSuspects {
		t.Errorf("%d are remembered, want %d", len(s), maxSuspects)
	}
}
