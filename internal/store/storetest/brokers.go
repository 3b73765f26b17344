package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// forBroker makes n messages of orders for a broker, numbered from first on.
func forBroker(broker string, first, n int) []halfmsg.Message {
	all := make([]halfmsg.Message, n)
	for i := range all {
		all[i] = message("orders", fmt.Sprintf("%04d", first+i))
		all[i].Broker = broker
	}
	return all
}

// claimFor claims messages for some brokers and returns their ids, sorted.
func (s *suite) claimFor(limit int, brokers ...string) (claims []halfmsg.Claim, ids []string) {
	s.Helper()
	claims, err := s.Store.ClaimSendable(s.Context(), limit, long, brokers...)
	if err != nil {
		s.Fatalf("claim for %q: %v", brokers, err)
	}
	for _, claim := range claims {
		if !slices.Contains(brokers, claim.Broker) {
			s.Errorf("claimed for %q: %s, which is for %q", brokers, claim.Name, claim.Broker)
		}
		ids = append(ids, claim.ID)
	}
	slices.Sort(ids)
	return claims, ids
}

func (s *suite) wantIDs(what string, got []string, want ...string) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("%s: claimed %q, want %q", what, got, want)
	}
}

func someBrokers(s *suite) {
	s.sendable(forBroker("", 1, 1)...)
	s.sendable(forBroker("events", 2, 1)...)
	s.sendable(forBroker("away", 3, 1)...)
	_, ids := s.claimFor(10, "events")
	s.wantIDs("events", ids, "0002")
	_, ids = s.claimFor(10, "")
	s.wantIDs("the default broker", ids, "0001")
	_, ids = s.claimFor(10, "", "events")
	s.wantIDs("both again", ids)
	claims, ids := s.claimFor(10, "", "away")
	s.wantIDs("away", ids, "0003")
	if s.settleClaim(claims[0], halfmsg.EventAcked); s.state(claims[0].Name) != halfmsg.Done {
		s.Errorf("%s is %s after its acknowledgement", claims[0].Name, s.state(claims[0].Name))
	}
	all := forBroker("events", 20, 1)[0]
	s.sendable(all)
	if claims := s.claimSendable(10, long); len(claims) != 1 || claims[0].Broker != "events" {
		s.Errorf("claimed for every broker: %+v", claims)
	}
}

// otherBrokers: thousands of older messages for a broker that takes none stand before the others, and cost no claim of
// the others; later they come in their order.
func otherBrokers(s *suite) {
	const many = 3000
	away := forBroker("away", 0, many)
	for part := range slices.Chunk(away, 500) {
		s.sendable(part...)
	}
	s.sendable(forBroker("", many, 20)...)
	var got []string
	for range 100 { // a claim may end before all is parked
		_, ids := s.claimFor(100, "")
		if got = append(got, ids...); len(got) >= 20 {
			break
		}
	}
	if _, ids := s.claimFor(100, ""); len(got) != 20 || len(ids) > 0 { // the order holds within a shard only
		s.Errorf("claimed for the default broker: %q", got)
	}
	seen := map[string]bool{}
	for range 100 {
		if len(seen) == many {
			break
		}
		claims, _ := s.claimFor(500, "away")
		for _, claim := range claims {
			if claim.Copies > 0 || claim.PublishAttempts > 0 || seen[claim.ID] {
				s.Errorf("%s: copies %d, attempts %d, again %t", claim.Name, claim.Copies, claim.PublishAttempts, seen[claim.ID])
			}
			seen[claim.ID] = true
		}
	}
	if _, again := s.claimFor(500, "away"); len(seen) != many || len(again) > 0 {
		s.Errorf("claimed %d of %d parked messages, and %q again", len(seen), many, again)
	}
}

// parkedOnce: what a claim for other brokers has put aside keeps one owner, even if an operator retries it meanwhile.
func parkedOnce(s *suite) {
	m := forBroker("events", 1, 1)[0]
	s.sendable(m)
	s.claimFor(10, "")
	if r := s.Store.Retry(s.Context(), []halfmsg.Name{m.Name}, "tester", "")[0]; r.Err != nil {
		s.Fatal(r.Err)
	}
	claims := s.claimSendable(10, long) // without names, which leaves alone what is noted as parked
	if len(claims) != 1 || claims[0].ID != "0001" {
		s.Fatalf("claimed for every broker: %+v", claims)
	}
	if _, ids := s.claimFor(10, "events"); len(ids) > 0 {
		s.Errorf("claimed twice: %q", ids)
	}
	s.settleClaim(claims[0], halfmsg.EventReleased)
	s.claimFor(10, "")
	again, ids := s.claimFor(10, "", "events")
	s.wantIDs("parked anew", ids, "0001")
	if _, ids := s.claimFor(10, "", "events"); len(ids) > 0 {
		s.Errorf("claimed twice: %q", ids)
	}
	s.settleClaim(again[0], halfmsg.EventAcked)
	s.claimFor(10, "", "events")
	if state := s.state(m.Name); state != halfmsg.Done {
		s.Errorf("the message is %s", state)
	}
}

// parkedOwner: the owner of a message whose lease had ended cannot write any more once the message is parked, and the
// copy that this owner may have sent is counted.
func parkedOwner(s *suite) {
	m := forBroker("events", 1, 1)[0]
	claim := s.bring(m, halfmsg.Pending)
	s.settleClaim(claim, halfmsg.EventCommitted, holding(short))
	s.passes(short, "the lease ends", func() bool {
		s.claimFor(10, "")
		r := s.word(claim, halfmsg.EventUnreachable) // not legal for a sendable message
		return errors.Is(r.Err, halfmsg.ErrLeaseLost)
	})
	s.claimFor(10, "")
	if r := s.word(claim, halfmsg.EventAcked); !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("the old owner's word: %v, %v", r.State, r.Err)
	}
	claims, _ := s.claimFor(10, "events")
	if len(claims) != 1 || claims[0].Copies != 1 {
		s.Errorf("claimed after the parking: %+v", claims)
	}
}
