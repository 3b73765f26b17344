package confirmloop

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestWhoWasNotAskedAboutAloneGoesFirst(t *testing.T) {
	c := &Confirmer{}
	l := &lane{laneKey: laneKey{use: quarantined}, producer: &producer{}, quarantine: quarantine{"failed": true, "fresh": false}}
	for _, id := range []string{"failed", "fresh"} {
		name := halfmsg.Name{Producer: "orders", ID: id}
		c.push(l, delivery.Leased{Claim: halfmsg.Claim{Message: halfmsg.Message{Name: name}}})
	}
	if l.queue[0].ID != "fresh" || l.queue[1].ID != "failed" {
		t.Errorf("first %s, then %s", l.queue[0].Name, l.queue[1].Name)
	}
}

// The newest is the likeliest to have come upon suspects that were there before.
func TestTheNewestSuspectGoesFirst(t *testing.T) {
	c := &Confirmer{}
	l := &lane{laneKey: laneKey{use: quarantined}, producer: &producer{}, quarantine: quarantine{"failed": true}}
	now := time.Now()
	for id, age := range map[string]time.Duration{"failed": 0, "old": time.Hour, "new": time.Second, "between": time.Minute} {
		name := halfmsg.Name{Producer: "orders", ID: id}
		c.push(l, delivery.Leased{Claim: halfmsg.Claim{Message: halfmsg.Message{Name: name}, CreatedAt: now.Add(-age)}})
	}
	var ids []string
	for _, h := range l.queue {
		ids = append(ids, h.ID)
	}
	if want := []string{"new", "between", "old", "failed"}; !slices.Equal(ids, want) {
		t.Errorf("they stand as %v, want %v", ids, want)
	}
}

// What was taken out of a queue is not kept in memory by what still waits there.
func TestWhatIsTakenFromAQueueIsLetGo(t *testing.T) {
	for _, from := range []int{0, 1} {
		all := make([]delivery.Leased, 3)
		for i := range all {
			all[i].Body = []byte{byte(i)}
		}
		l := &lane{queue: all}
		taken := l.cut(from, 1)
		if len(taken) != 1 || int(taken[0].Body[0]) != from || len(l.queue) != 2 {
			t.Fatalf("from %d: took %v, %d are left", from, taken, len(l.queue))
		}
		for _, h := range l.queue {
			if bytes.Equal(h.Body, taken[0].Body) {
				t.Errorf("from %d: what was taken still waits", from)
			}
		}
		kept := 0
		for i := range all {
			if all[i].Body != nil {
				kept++
			}
		}
		if kept != 2 {
			t.Errorf("from %d: %d bodies are kept for 2 messages", from, kept)
		}
	}
}

func TestAProducerIsDroppedWithItsLastLane(t *testing.T) {
	for what, c := range map[string]struct {
		p       producer
		dropped bool
	}{
		"idle":                  {producer{}, true},
		"a call under way":      {producer{calls: 1}, false},
		"a batch about to be":   {producer{taking: true}, false},
		"a lane that remembers": {producer{lanes: map[laneKey]*lane{{}: {confirms: breaker{failures: 1}, usedAt: time.Now()}}}, false},
		"a lane that is idle":   {producer{lanes: map[laneKey]*lane{{}: {usedAt: time.Now()}}}, true},
		"a lane that has forgotten": {
			producer{lanes: map[laneKey]*lane{{}: {confirms: breaker{failures: 1}, usedAt: time.Now().Add(-laneMemory)}}}, true,
		},
		"a lane with a call": {producer{lanes: map[laneKey]*lane{{}: {calls: 1}}}, false},
	} {
		c.p.name = "orders"
		all := &Confirmer{producers: map[string]*producer{"orders": &c.p}}
		all.tidy(&c.p)
		if dropped := len(all.producers) == 0; dropped != c.dropped {
			t.Errorf("%s: dropped %t, want %t", what, dropped, c.dropped)
		}
	}
}

func TestSuspectsAreBounded(t *testing.T) {
	s := quarantine{}
	for i := range maxQuarantined + 10 {
		id := fmt.Sprint(i)
		s.add(id, i%2 == 0)
		s.add(id, false)
		if alone, known := s[id]; !known || alone != (i%2 == 0) {
			t.Fatalf("%s: known %t, failed alone %t", id, known, alone)
		}
	}
	if len(s) != maxQuarantined {
		t.Errorf("%d are remembered, want %d", len(s), maxQuarantined)
	}
}
