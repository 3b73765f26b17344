package storetest

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func createTwice(s *suite) {
	m := message("orders", "1")
	s.create(m)
	s.untouched(m.Name, func() { s.create(m) })

	moved := m
	moved.CallbackTarget, moved.ConfirmAfter, moved.Trace = "dns:///elsewhere:1", time.Minute, ""
	s.untouched(m.Name, func() { s.create(moved) })

	other := m
	other.Body = []byte("something else")
	s.untouched(m.Name, func() {
		if r := s.Store.Create(s.Context(), []halfmsg.Message{other})[0]; !errors.Is(r.Err, halfmsg.ErrExists) ||
			r.State != halfmsg.Pending {
			s.Errorf("other content: %v, %v", r.State, r.Err)
		}
	})
	for _, state := range halfmsg.States()[2:] { // None and PENDING are its origins
		m := message("orders", state.String())
		s.bring(m, state)
		for call, repeat := range s.repeats() {
			if r := repeat(s.Context(), []halfmsg.Message{m})[0]; r.Err != nil || r.State != state {
				s.Errorf("%s when %s: %v, %v", call, state, r.State, r.Err)
			}
		}
		m.RoutingKey = "elsewhere"
		for call, repeat := range s.repeats() {
			if r := repeat(s.Context(), []halfmsg.Message{m})[0]; !errors.Is(r.Err, halfmsg.ErrExists) || r.State != state {
				s.Errorf("%s with other content when %s: %v, %v", call, state, r.State, r.Err)
			}
		}
	}
	elsewhere, apart := m, m
	elsewhere.Broker, apart.MarkerStore = "events", "other"
	for _, differs := range []halfmsg.Message{elsewhere, apart} {
		if r := s.Store.Create(s.Context(), []halfmsg.Message{differs})[0]; !errors.Is(r.Err, halfmsg.ErrExists) {
			s.Errorf("the same content for broker %q, of marker store %q: %v, %v", differs.Broker, differs.MarkerStore,
				r.State, r.Err)
		}
	}
}

// repeats are the calls that answer a repeated SendHalfMessage.
func (s *suite) repeats() map[string]func(context.Context, []halfmsg.Message) []halfmsg.Result {
	return map[string]func(context.Context, []halfmsg.Message) []halfmsg.Result{
		"Create": s.Store.Create, "Recall": s.Store.Recall,
	}
}

// recallStoresNothing: a message that is not there is not stored, beside messages that are.
func recallStoresNothing(s *suite) {
	old, fresh := message("a", "old"), message("b", "fresh")
	s.create(old)
	got := s.Store.Recall(s.Context(), []halfmsg.Message{fresh, old, fresh})
	for i, want := range []halfmsg.Result{
		{Err: halfmsg.ErrNotFound}, {State: halfmsg.Pending}, {Err: halfmsg.ErrNotFound},
	} {
		if got[i].State != want.State || !errors.Is(got[i].Err, want.Err) {
			s.Errorf("item %d: %v, %v; want %v, %v", i, got[i].State, got[i].Err, want.State, want.Err)
		}
	}
	if _, err := s.Store.Get(s.Context(), fresh.Name); !errors.Is(err, halfmsg.ErrNotFound) {
		s.Errorf("after Recall the message is there: %v", err)
	}
}

func createMixed(s *suite) {
	old, fresh := message("a", "old"), message("b", "fresh")
	s.create(old)
	conflict := old
	conflict.Exchange = "elsewhere"
	got := s.Store.Create(s.Context(), []halfmsg.Message{fresh, conflict, old, fresh})
	want := []error{nil, halfmsg.ErrExists, nil, nil}
	for i := range got {
		if !errors.Is(got[i].Err, want[i]) || got[i].State != halfmsg.Pending {
			s.Errorf("item %d: %v, %v; want %v", i, got[i].State, got[i].Err, want[i])
		}
	}
	// The same name twice in a batch: the first wins.
	a, b := message("c", "1"), message("c", "1")
	b.Body = []byte("second")
	got = s.Store.Create(s.Context(), []halfmsg.Message{a, b})
	if got[0].Err != nil || !errors.Is(got[1].Err, halfmsg.ErrExists) || string(s.get(a.Name).Body) != string(a.Body) {
		s.Errorf("twice in a batch: %v", got)
	}
}

func contentSurvives(s *suite) {
	binary := message("orders", "binary")
	binary.Body = make([]byte, 256)
	for i := range binary.Body {
		binary.Body[i] = byte(i)
	}
	large := message("orders", "large")
	large.Body = bytes.Repeat([]byte("0123456789\n\r\x00\xff012"), 64<<10/16)
	large.Delay = 90 * time.Second
	bare := halfmsg.Message{Name: halfmsg.Name{Producer: "orders", ID: "bare"}, Body: []byte{}}
	headers := message("orders", "headers")
	headers.Headers = map[string]string{}
	for i := range 32 {
		headers.Headers[string(rune('a'+i))] = string(bytes.Repeat([]byte(`"\<é`), 100))
	}
	named, namedLarge := message("orders", "named"), large
	named.Broker, namedLarge.Broker, namedLarge.ID = "events", "Ev.2_b-", "named-large"
	for _, m := range []halfmsg.Message{binary, large, bare, headers, named, namedLarge} {
		s.create(m)
		claim := s.submit(long, m.Name)[0]
		if !reflect.DeepEqual(claim.Message, m) {
			s.Errorf("%s was claimed with other content", m.Name)
		}
		if r := s.get(m.Name); !reflect.DeepEqual(r.Message, m) {
			s.Errorf("%s was shown with other content", m.Name)
		} else if !claim.CreatedAt.Equal(r.CreatedAt) || r.CreatedAt.IsZero() {
			s.Errorf("%s was claimed as created at %v, and is shown as of %v", m.Name, claim.CreatedAt, r.CreatedAt)
		}
	}
}

func oddNames(s *suite) {
	allowed := "aZ09._:~-"
	ids := []string{
		"m:1",
		"1:m:2",
		"pending",
		"created",
		"leases",
		"0",
		"a:created",
		string(bytes.Repeat([]byte("x"), 128)),
		"A" + allowed,
	}
	var all []halfmsg.Message
	for _, producer := range []string{"orders", "orders.eu", "pending", "m", "x", "producers", "a_b-c.9", "leases"} {
		for _, id := range ids {
			all = append(all, message(producer, id))
		}
	}
	s.create(all...)
	for i, claim := range s.submit(long, names(all)...) {
		if claim.Name != all[i].Name || !bytes.Equal(claim.Body, all[i].Body) {
			s.Errorf("%s came back as %s", all[i].Name, claim.Name)
		}
		s.settleClaim(claim, halfmsg.EventCommitted, holding(long))
		s.settleClaim(claim, halfmsg.EventAcked)
	}
}

func largeBatches(s *suite) {
	all := messages("many", 1200)
	s.create(all...)
	var batch []halfmsg.Settlement
	for i, claim := range s.submit(long, names(all)...) {
		if claim.Name != all[i].Name {
			s.Fatalf("item %d is %s, not %s", i, claim.Name, all[i].Name)
		}
		batch = append(batch, halfmsg.Settlement{Name: claim.Name, Token: claim.Token, Event: halfmsg.EventCommitted})
	}
	for i, r := range s.Store.Settle(s.Context(), batch) {
		if r.Err != nil || r.State != halfmsg.Sendable {
			s.Fatalf("item %d: %v, %v", i, r.State, r.Err)
		}
	}
	seen := map[halfmsg.Name]bool{}
	for {
		claims := s.claimSendable(500, long)
		if len(claims) == 0 {
			break
		}
		for _, claim := range claims {
			seen[claim.Name] = true
		}
	}
	if len(seen) != len(all) {
		s.Errorf("%d of %d were claimed", len(seen), len(all))
	}
}

func submitClaims(s *suite) {
	m := message("orders", "1")
	s.create(m)
	claim := s.submit(long, m.Name)[0]
	if claim.State != halfmsg.Pending || claim.Token == "" {
		s.Errorf("claimed as %s with token %q", claim.State, claim.Token)
	}
	if r := s.get(m.Name); r.LeaseOwner == "" || r.LeaseUntil.IsZero() {
		s.Errorf("no owner is shown: %+v", r)
	}
	second := s.Store.Submit(s.Context(), []halfmsg.Name{m.Name, {Producer: "orders", ID: "none"}}, long)
	if second[0].Claim != nil || second[0].Err != nil || second[0].State != halfmsg.Pending {
		s.Errorf("a held message: %v, %v, claimed: %t", second[0].State, second[0].Err, second[0].Claim != nil)
	}
	if !errors.Is(second[1].Err, halfmsg.ErrNotFound) {
		s.Errorf("an unknown message: %v", second[1].Err)
	}
	s.settleClaim(claim, halfmsg.EventReleased, after(time.Hour))
	s.submit(long, m.Name) // free now
}

func submitHurries(s *suite) {
	m := message("orders", "1")
	s.create(m)
	claim := s.submit(long, m.Name)[0]
	s.Store.Submit(s.Context(), []halfmsg.Name{m.Name}, long)
	s.settleClaim(claim, halfmsg.EventUnknown, after(time.Hour))
	again := s.claimPending("orders", 1, long)
	if len(again) != 1 || again[0].ConfirmAttempts != 1 {
		s.Fatalf("claimed %d at once after UNKNOWN", len(again))
	}
	s.settleClaim(again[0], halfmsg.EventUnknown, after(time.Hour))
	if third := s.claimPending("orders", 1, long); len(third) != 0 {
		s.Error("the Submit counted twice")
	}
	// An owner that claims after the Submit asks later anyway.
	claim = s.submit(long, m.Name)[0]
	s.Store.Submit(s.Context(), []halfmsg.Name{m.Name}, long)
	s.settleClaim(claim, halfmsg.EventReleased)
	claim = s.claimPending("orders", 1, long)[0]
	s.settleClaim(claim, halfmsg.EventUnknown, after(time.Hour))
	if third := s.claimPending("orders", 1, long); len(third) != 0 {
		s.Error("the Submit counted for an owner that came after it")
	}
}

func submitAbandoned(s *suite) {
	m := message("orders", "1")
	claim := s.bring(m, halfmsg.Pending)
	s.settleClaim(claim, halfmsg.EventUnknown)
	s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventGivenUp)
	claim = s.submit(long, m.Name)[0]
	if claim.State != halfmsg.Pending || claim.ConfirmAttempts != 0 {
		s.Errorf("woken as %s with %d attempts", claim.State, claim.ConfirmAttempts)
	}
	if got := s.settleClaim(claim, halfmsg.EventCommitted); got != halfmsg.Sendable {
		s.Errorf("committed late: %s", got)
	}
}

// submitDuringFinal: a Submit during the final question must not be lost.
func submitDuringFinal(s *suite) {
	m := message("orders", "1")
	claim := s.bring(m, halfmsg.Pending)
	s.Store.Submit(s.Context(), []halfmsg.Name{m.Name}, long)
	if got := s.settleClaim(claim, halfmsg.EventGivenUp); got != halfmsg.Pending {
		s.Fatalf("given up: %s", got)
	}
	if again := s.claimPending("orders", 1, long); len(again) != 1 || again[0].ConfirmAttempts != 0 {
		s.Errorf("claimed %d at once", len(again))
	}
}

func retryHeld(s *suite) {
	m := message("orders", "1")
	claim := s.bring(m, halfmsg.Sendable)
	if r := s.Store.Retry(s.Context(), []halfmsg.Name{m.Name}, "", "")[0]; r.Err != nil || r.State != halfmsg.Sendable {
		s.Fatalf("retry: %v, %v", r.State, r.Err)
	}
	if others := s.claimSendable(1, long); len(others) != 0 {
		s.Fatal("a retry took the message out of its owner's hands")
	}
	if got := s.settleClaim(claim, halfmsg.EventExhausted); got != halfmsg.Sendable {
		s.Fatalf("exhausted after a retry: %s", got)
	}
	if others := s.claimSendable(1, long); len(others) != 1 || others[0].PublishAttempts != 0 || others[0].Copies != 1 {
		s.Errorf("after the retry: %+v", others)
	}
}

func rollback(s *suite) {
	held, free := s.bring(message("orders", "held"), halfmsg.Pending), message("orders", "free")
	s.create(free)
	for range 2 { // repeatable
		for i, r := range s.Store.Rollback(s.Context(), []halfmsg.Name{held.Name, free.Name}) {
			if r.Err != nil || r.State != halfmsg.RolledBack {
				s.Errorf("item %d: %v, %v", i, r.State, r.Err)
			}
		}
	}
	if r := s.word(held, halfmsg.EventCommitted); r.State != halfmsg.RolledBack ||
		!errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("committed after a rollback: %v, %v", r.State, r.Err)
	}
	if claims := s.claimPending("orders", 10, long); len(claims) != 0 {
		s.Errorf("claimed %d of the rolled back", len(claims))
	}
}

func concurrentCreates(s *suite) {
	const callers = 8
	var wg sync.WaitGroup
	results := make([]halfmsg.Result, callers)
	for i := range callers {
		wg.Go(func() {
			m := message("orders", "1")
			m.Body = []byte{byte(i)}
			results[i] = s.Store.Create(s.Context(), []halfmsg.Message{m})[0]
		})
	}
	wg.Wait()
	won := 0
	for i, r := range results {
		switch {
		case r.Err == nil:
			won++
			if got := s.get(halfmsg.Name{Producer: "orders", ID: "1"}).Body; got[0] != byte(i) {
				s.Errorf("caller %d was told that its message is stored, and another message is", i)
			}
		case !errors.Is(r.Err, halfmsg.ErrExists):
			s.Errorf("caller %d: %v", i, r.Err)
		}
	}
	if won != 1 {
		s.Errorf("%d callers won", won)
	}
}

func emptyBatches(s *suite) {
	ctx := s.Context()
	n := len(s.Store.Create(ctx, nil)) + len(s.Store.Submit(ctx, nil, long)) + len(s.Store.Rollback(ctx, nil)) +
		len(s.Store.Settle(ctx, nil)) + len(s.Store.Retry(ctx, nil, "", "")) + len(s.Store.Discard(ctx, nil, halfmsg.None))
	if n != 0 || len(s.claimSendable(0, long)) != 0 {
		s.Error("something came of nothing")
	}
	if claims, err := s.Store.ClaimPending(ctx, nil, long); len(claims) != 0 || err != nil {
		s.Errorf("claimed without quota: %v, %v", claims, err)
	}
}
