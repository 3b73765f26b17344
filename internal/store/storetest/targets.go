package storetest

import (
	"fmt"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// markerStore is the marker store of the targets that are left out.
const markerStore = "live"

// toTarget makes n messages of orders with a callback target, due at once.
func toTarget(target, kind string, n int) []halfmsg.Message {
	all := make([]halfmsg.Message, n)
	for i := range all {
		all[i] = message("orders", fmt.Sprintf("%s-%04d", kind, i))
		all[i].CallbackTarget, all[i].ConfirmAfter, all[i].MarkerStore = target, 0, markerStore
		all[i].Headers["callback_target"] = "live:1"
	}
	return all
}

// claimWithout claims pending messages without some targets, and counts the claims by producer and target.
func (s *suite) claimWithout(count map[string]int, without ...halfmsg.LeftOut) {
	s.Helper()
	claims, err := s.Store.ClaimPending(s.Context(), map[string]int{"orders": 500, "other": 500}, long, without...)
	if err != nil {
		s.Fatal(err)
	}
	for _, claim := range claims {
		count[claim.Producer+" "+claim.CallbackTarget]++
	}
}

// claimSome claims again and again, because one claim may end before it has put off all; where a test repeats the call
// until its claims are there, once is enough.
func (s *suite) claimSome(claim func()) {
	s.Helper()
	times := 1
	if s.Advance != nil {
		times = 100
	}
	for range times {
		claim()
	}
}

// leftOutTargets: hundreds of older messages of targets that take no call stand before no message of another target,
// and are due again when their wait has ended. A target is a producer's, for one marker store: the messages of another
// producer and of another store to the same address are claimed.
func leftOutTargets(s *suite) {
	s.create(toTarget("dead:1", "dead", 600)...)
	s.create(toTarget("", "none", 10)...)
	s.create(toTarget("live:1", "live", 20)...)
	others := toTarget("dead:1", "other", 5)
	for i := range others {
		others[i].Producer = "other"
	}
	s.create(others...)
	apart := toTarget("dead:1", "apart", 5)
	for i := range apart {
		apart[i].MarkerStore = "staging"
	}
	s.create(apart...)
	leftOut := func(producer, address string) halfmsg.LeftOut {
		to := halfmsg.Target{Producer: producer, Address: address, MarkerStore: markerStore}
		return halfmsg.LeftOut{Target: to, Wait: short}
	}
	dead, none := leftOut("orders", "dead:1"), leftOut("orders", "")
	count := map[string]int{}
	s.passes(0, "the messages of the live target are claimed", func() bool {
		s.claimSome(func() { s.claimWithout(count, dead, none) })
		return count["orders live:1"] == 20 && count["other dead:1"] == 5 && count["orders dead:1"] >= 5
	})
	if count["orders dead:1"] > 5 || count["orders "] > 0 {
		s.Errorf("claimed of the targets left out: %v", count)
	}
	s.passes(short, "the wait of the others ends", func() bool {
		s.claimSome(func() { s.claimWithout(count) })
		return count["orders dead:1"] == 605 && count["orders "] == 10
	})
}

// leftOutUntilOld: from an age on messages are claimed in spite of their target, to be given up in time.
func leftOutUntilOld(s *suite) {
	s.create(toTarget("dead:1", "dead", 3)...)
	to := halfmsg.Target{Producer: "orders", Address: "dead:1", MarkerStore: markerStore}
	dead := halfmsg.LeftOut{Target: to, Wait: long, MaxAge: short}
	count := map[string]int{}
	s.claimWithout(count, dead)
	s.passes(short, "the messages are old enough", func() bool {
		s.claimWithout(count, dead)
		return count["orders dead:1"] == 3
	})
}
