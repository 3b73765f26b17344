package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// lostOwner: a sendable message whose owner died may have been published, so its next copy must say so.
func lostOwner(s *suite) {
	m := message("orders", "1")
	claim := s.bring(m, halfmsg.Pending)
	s.settleClaim(claim, halfmsg.EventCommitted, holding(short))
	var claims []halfmsg.Claim
	s.passes(short, "the lease ends and another takes over", func() bool {
		claims = s.claimSendable(1, long)
		return len(claims) == 1
	})
	if created := s.get(m.Name).CreatedAt; created.IsZero() || !claims[0].CreatedAt.Equal(created) {
		s.Errorf("created at %v, says the claim; at %v, says the record", claims[0].CreatedAt, created)
	}
	if claims[0].Copies != 1 || claims[0].PublishAttempts != 0 {
		s.Errorf("%d copies, %d attempts", claims[0].Copies, claims[0].PublishAttempts)
	}
	if r := s.word(claim, halfmsg.EventAcked); !errors.Is(r.Err, halfmsg.ErrLeaseLost) || r.State != halfmsg.Sendable {
		s.Errorf("the old owner's word: %v, %v", r.State, r.Err)
	}
	s.settleClaim(claims[0], halfmsg.EventReleased)
	if again := s.claimSendable(1, long); len(again) != 1 || again[0].Copies != 1 {
		s.Errorf("a message handed back counts as published: %+v", again)
	}
}

// leaseEnded: an owner whose lease has ended is refused even when no other owner has taken the message.
func leaseEnded(s *suite) {
	m := message("orders", "1")
	s.create(m)
	claim := s.submit(short, m.Name)[0]
	s.passes(short, "the lease ends", func() bool {
		r := s.word(claim, halfmsg.EventAcked) // not legal for a pending message, so nothing changes
		return errors.Is(r.Err, halfmsg.ErrLeaseLost) && r.State == halfmsg.Pending
	})
	s.untouched(m.Name, func() {
		if r := s.word(claim, halfmsg.EventCommitted); !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
			s.Errorf("a verdict after the lease: %v, %v", r.State, r.Err)
		}
	})
	claims := s.claimPending("orders", 1, long)
	if len(claims) != 1 || claims[0].Copies != 0 {
		s.Fatalf("not to be claimed after the lease: %+v", claims)
	}
	if r := s.word(claim, halfmsg.EventRolledBack); !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("the old owner's word: %v, %v", r.State, r.Err)
	}
	s.settleClaim(claims[0], halfmsg.EventCommitted)
}

func hold(s *suite) {
	m := message("orders", "1")
	s.create(m)
	claim := s.submit(long, m.Name)[0]
	s.settleClaim(claim, halfmsg.EventCommitted, holding(long))
	if others := s.claimSendable(1, long); len(others) != 0 {
		s.Fatal("another owner took a leased message")
	}
	s.settleClaim(claim, halfmsg.EventRefused, after(0))
	if others := s.claimSendable(1, long); len(others) != 1 {
		s.Fatal("a message handed back was not to be had")
	}
	if r := s.word(claim, halfmsg.EventAcked); !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("the old owner's word: %v, %v", r.State, r.Err)
	}
}

func delayed(s *suite) {
	m := message("orders", "1")
	m.Delay = 300 * time.Millisecond
	s.sendable(m)
	if claims := s.claimSendable(1, long); s.Advance != nil && len(claims) != 0 {
		s.Fatal("published before its time")
	}
	s.passes(m.Delay, "it is due", func() bool { return len(s.claimSendable(1, long)) == 1 })

	silent := message("silent", "1")
	silent.ConfirmAfter = 200 * time.Millisecond
	s.create(silent)
	if claims := s.claimPending("silent", 1, long); s.Advance != nil && len(claims) != 0 {
		s.Fatal("asked before its time")
	}
	s.passes(silent.ConfirmAfter, "it is asked about", func() bool { return len(s.claimPending("silent", 1, long)) == 1 })
}

func oldestFirst(s *suite) {
	const n = 9
	gap := 60 * time.Millisecond
	if s.Advance == nil {
		gap = 400 * time.Millisecond // longer than a busy machine needs between two shards
	}
	all := messages("orders", n)
	for i := range all {
		all[i].ConfirmAfter = gap * time.Duration((i*4)%n+1)
	}
	s.create(all...)
	var last time.Duration
	seen := 0
	s.passes(gap*n+short, "all are claimed", func() bool {
		for {
			claims := s.claimPending("orders", 2, long)
			for _, claim := range claims {
				if claim.ConfirmAfter < last {
					s.Errorf("due after %v was claimed after %v", claim.ConfirmAfter, last)
				}
				last = claim.ConfirmAfter
				seen++
			}
			if len(claims) == 0 {
				return seen == n
			}
		}
	})
}

func quotas(s *suite) {
	hanging, healthy, other := messages("hanging", 300), messages("healthy", 20), messages("other", 5)
	for _, all := range [][]halfmsg.Message{hanging, healthy, other} {
		for i := range all {
			all[i].ConfirmAfter = 0
		}
		s.create(all...)
	}
	producers, err := s.Store.PendingProducers(s.Context())
	if err != nil || fmt.Sprint(producers) != "[hanging healthy other]" {
		s.Fatalf("producers with pending messages: %v, %v", producers, err)
	}
	count := map[string]int{}
	s.passes(0, "the producers' messages are due", func() bool {
		claims, err := s.Store.ClaimPending(s.Context(),
			map[string]int{"hanging": 7 - count["hanging"], "healthy": 50, "nobody": 3}, long)
		if err != nil {
			s.Fatal(err)
		}
		for _, claim := range claims {
			count[claim.Producer]++
		}
		return count["hanging"] == 7 && count["healthy"] == 20
	})
	if count["other"] != 0 {
		s.Errorf("claimed of a producer without a quota: %v", count)
	}
}

func fairSend(s *suite) {
	s.sendable(messages("flood", 150)...)
	s.sendable(messages("small", 6)...)
	s.sendable(messages("tiny", 1)...)
	count := map[string]int{}
	for _, claim := range s.claimSendable(30, long) {
		count[claim.Producer]++
	}
	if count["small"] != 6 || count["tiny"] != 1 || count["flood"] != 23 {
		s.Errorf("30 were shared as %v", count)
	}
	seen := map[string]bool{}
	for range 3 {
		s.sendable(message("a", fmt.Sprint(len(seen))), message("b", fmt.Sprint(len(seen))))
		for _, claim := range s.claimSendable(200, long) {
			seen[claim.Name.String()] = true
		}
	}
	if len(seen) != 127+6 {
		s.Errorf("claimed %d of the rest", len(seen))
	}
}

func oneOwner(s *suite) {
	const n, claimers = 240, 6
	s.sendable(messages("orders", n)...)
	var mu sync.Mutex
	owners := map[halfmsg.Name][]halfmsg.Token{}
	var wg sync.WaitGroup
	for range claimers {
		wg.Go(func() {
			for {
				claims, err := s.Store.ClaimSendable(s.Context(), 17, long)
				if err != nil {
					s.Error(err)
					return
				}
				mu.Lock()
				for _, claim := range claims {
					owners[claim.Name] = append(owners[claim.Name], claim.Token)
				}
				done := len(owners) == n
				mu.Unlock()
				if done {
					return
				}
			}
		})
	}
	wg.Wait()
	for name, tokens := range owners {
		if len(tokens) != 1 {
			s.Errorf("%s was claimed by %v", name, tokens)
		}
	}
}
