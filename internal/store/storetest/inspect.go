package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// pages lists everything in a state and calls between after each page.
func (s *suite) pages(query halfmsg.Query, between func()) []halfmsg.Record {
	s.Helper()
	var all []halfmsg.Record
	for range 10000 {
		page, err := s.Store.List(s.Context(), query)
		if err != nil {
			s.Fatalf("list: %v", err)
		}
		if len(page.Records) > query.Limit {
			s.Fatalf("a page of %d holds %d", query.Limit, len(page.Records))
		}
		all = append(all, page.Records...)
		if query.Cursor = page.Next; page.Next == "" {
			return all
		}
		between()
	}
	s.Fatal("a listing without end")
	return nil
}

func listing(s *suite) {
	const n = 23
	var all []halfmsg.Message
	for i := range n {
		all = append(all, message([]string{"a", "b", "c"}[i%3], fmt.Sprintf("%02d", i)))
	}
	for i := range all {
		s.create(all[i]) // at as many times as can be
		if s.Advance != nil && i%4 != 0 {
			s.Advance(time.Millisecond)
		}
	}
	for _, limit := range []int{1, 2, 3, 7, n - 1, n, n + 1} {
		records := s.pages(halfmsg.Query{State: halfmsg.Pending, Limit: limit}, func() {})
		if len(records) != n {
			s.Fatalf("pages of %d list %d of %d", limit, len(records), n)
		}
		for i, r := range records {
			if i > 0 && r.CreatedAt.Before(records[i-1].CreatedAt) {
				s.Fatalf("pages of %d: %s is older than the record before", limit, r.Name)
			}
			if r.Body != nil || r.Exchange == "" || r.State != halfmsg.Pending {
				s.Fatalf("listed as %+v", r)
			}
		}
	}
	if records := s.pages(halfmsg.Query{State: halfmsg.Pending, Producer: "b", Limit: 3}, func() {}); len(records) != 8 {
		s.Errorf("producer b has %d", len(records))
	}
	for _, state := range []halfmsg.State{halfmsg.Sendable, halfmsg.Abandoned, halfmsg.Dead, halfmsg.Acknowledged} {
		if records := s.pages(halfmsg.Query{State: state, Limit: 3}, func() {}); len(records) != 0 {
			s.Errorf("%s: %d", state, len(records))
		}
	}
	if _, err := s.Store.List(s.Context(), halfmsg.Query{
		State: halfmsg.Pending, Limit: 3,
		Cursor: "nonsense",
	}); err == nil {
		s.Error("an invalid cursor was taken")
	}
}

// listingMoves: a message that stays in the state is listed, also while other messages move.
func listingMoves(s *suite) {
	for _, limit := range []int{1, 3, 20} {
		producer := fmt.Sprintf("p%d", limit)
		all := messages(producer, 30)
		s.create(all...)
		moving := all[15:]
		i := 0
		records := s.pages(halfmsg.Query{State: halfmsg.Pending, Producer: producer, Limit: limit}, func() {
			if i < len(moving) {
				claim := s.submit(long, moving[i].Name)[0]
				s.settleClaim(claim, halfmsg.EventCommitted)
				s.create(message(producer, fmt.Sprintf("new-%d", i)))
				i++
			}
		})
		seen := map[halfmsg.Name]int{}
		for _, r := range records {
			seen[r.Name]++
		}
		for _, m := range all[:15] {
			if seen[m.Name] != 1 {
				s.Errorf("pages of %d: %s listed %d times", limit, m.Name, seen[m.Name])
			}
		}
	}
}

// listingMatches: a filter finds exactly the matching messages, even with the smallest pages.
func listingMatches(s *suite) {
	const n = 30
	for i := range n {
		m := message([]string{"a", "b"}[i%2], fmt.Sprintf("%02d", i))
		m.Exchange, m.Broker = []string{"orders", "orders-2", `or"<\u00e9`}[i%3], []string{"", "events"}[i/3%2]
		m.RoutingKey = []string{"paid", `p"<\u00e9`}[i%2]
		m.Headers = map[string]string{"tenant": []string{"nordic", `"<b>`}[i%2], "n": fmt.Sprint(i)}
		s.create(m)
		claim := s.submit(long, m.Name)[0]
		s.settleClaim(claim, halfmsg.EventCommitted, holding(long))
		if i%5 == 0 {
			cause := fmt.Sprintf("NOT_FOUND - no exchange %d, ÉCHANGE REFUSÉ à 21 \u212a", i%10)
			s.settleClaim(claim, halfmsg.EventExhausted, because(cause))
		}
	}
	for i, c := range matches() {
		bounds := [][2]int{{3, 1}, {100, 0}}
		if i%5 == 0 { // how much one page may hold and look at has nothing to do with the filter
			bounds = [][2]int{{1, 0}, {2, 4}, {100, 7}}
		}
		for _, bounds := range bounds {
			c.query.Limit, c.query.Scan = bounds[0], bounds[1]
			seen := map[halfmsg.Name]bool{}
			for _, r := range s.pages(c.query, func() {}) {
				if seen[r.Name] || !c.query.Matches(&r) || r.State != c.query.State {
					s.Errorf("%+v lists %+v", c.query, r)
				}
				seen[r.Name] = true
			}
			if len(seen) != c.want {
				s.Errorf("%+v finds %d, want %d", c.query, len(seen), c.want)
			}
		}
	}
	for _, m := range messages("many", 100) {
		s.create(m) // at as many times as can be
		if s.Advance != nil {
			s.Advance(time.Millisecond)
		}
	}
	rare := halfmsg.Query{State: halfmsg.Pending, Error: "nobody has it", Limit: 5, Scan: 10}
	page, err := s.Store.List(s.Context(), rare)
	if err != nil || len(page.Records) != 0 || page.Looked < 10 || page.Next == "" {
		s.Errorf("a page that may look at ten: %+v, %v", page, err)
	}
	old := halfmsg.Query{State: halfmsg.Dead, MinAge: short, Limit: 4}
	s.passes(short, "the dead are old enough", func() bool { return len(s.pages(old, func() {})) == 6 })
}

// match is a query, and how many messages of listingMatches it finds.
type match struct {
	query halfmsg.Query
	want  int
}

func matches() []match {
	dead, sendable := halfmsg.Dead, halfmsg.Sendable
	return []match{
		{halfmsg.Query{State: sendable, Exchange: "orders"}, 8},
		{halfmsg.Query{State: sendable, Exchange: `or"<\u00e9`}, 8},
		{halfmsg.Query{State: sendable, Exchange: "order"}, 0},
		{halfmsg.Query{State: sendable, Exchange: "orders", Producer: "a"}, 4},
		{halfmsg.Query{State: sendable, Broker: "events"}, 12},
		{halfmsg.Query{State: sendable, Broker: halfmsg.DefaultBroker}, 12},
		{halfmsg.Query{State: sendable, Broker: "event"}, 0},
		{halfmsg.Query{State: sendable, Broker: "events", Exchange: "orders"}, 4},
		{halfmsg.Query{State: sendable, Broker: halfmsg.DefaultBroker, Exchange: "orders"}, 4},
		{halfmsg.Query{State: sendable, Error: "no exchange"}, 0},
		{halfmsg.Query{State: dead, Error: "not_found"}, 6},
		{halfmsg.Query{State: dead, Error: "No Exchange 5"}, 3},
		{halfmsg.Query{State: dead, Error: "no exchange 5", Exchange: "orders"}, 1},
		{halfmsg.Query{State: dead, Error: "échange refusé"}, 6},
		{halfmsg.Query{State: dead, Error: "21 K"}, 6}, // the lower case of a Kelvin is a letter of ASCII
		{halfmsg.Query{State: dead, Error: "échange accepté"}, 0},
		{halfmsg.Query{State: dead, Error: "%d.*"}, 0},
		{halfmsg.Query{State: dead, MinAge: time.Hour}, 0},
		{halfmsg.Query{State: sendable, RoutingKey: "paid"}, 12},
		{halfmsg.Query{State: sendable, RoutingKey: `p"<\u00e9`, Exchange: "orders"}, 4},
		{halfmsg.Query{State: sendable, RoutingKey: "pai"}, 0},
		{halfmsg.Query{State: sendable, HeaderName: "tenant", HeaderValue: `"<b>`}, 12},
		{halfmsg.Query{State: sendable, HeaderName: "n", HeaderValue: "7"}, 1},
		{halfmsg.Query{State: sendable, HeaderName: "tenant"}, 0},
		{halfmsg.Query{State: sendable, Exchange: halfmsg.DefaultExchange}, 0},
		{halfmsg.Query{State: sendable, IDPrefix: "1"}, 8},
		{halfmsg.Query{State: sendable, IDPrefix: "17"}, 1},
		{halfmsg.Query{State: sendable, IDPrefix: "0%d"}, 0},
		{halfmsg.Query{State: dead, Cause: "NOT_FOUND - no exchange …, ÉCHANGE REFUSÉ à … \u212a"}, 6},
		{halfmsg.Query{State: dead, Cause: "NOT_FOUND"}, 0},
		{halfmsg.Query{State: dead, Cause: halfmsg.NoCause}, 0},
		{halfmsg.Query{State: sendable, Cause: halfmsg.NoCause}, 24},
	}
}

// samples: a sample of few messages is all of them; a sample of many tells about how many match.
func samples(s *suite) {
	for i := range 100 {
		m := message([]string{"a", "b", "b", "b"}[i%4], fmt.Sprintf("%03d", i))
		m.Exchange = []string{"orders", "money"}[i/4%2]
		s.create(m)
		if s.Advance != nil {
			s.Advance(time.Millisecond)
		}
		if i%2 == 1 { // of b alone
			s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventUnknown, because("no row"))
		}
	}
	for _, c := range []struct {
		query halfmsg.Query
		total int64
		match float64
	}{
		{halfmsg.Query{}, 100, 100},
		{halfmsg.Query{Producer: "b"}, 75, 75},
		{halfmsg.Query{Producer: "b", Exchange: "orders"}, 75, 39},
		{halfmsg.Query{Cause: "no row"}, 100, 50},
		{halfmsg.Query{MinAge: time.Hour}, 0, 0},
		{halfmsg.Query{Producer: "c"}, 0, 0},
	} {
		for _, limit := range []int{1000, 40} {
			c.query.State, c.query.Limit = halfmsg.Pending, limit
			sample, err := s.Store.Sample(s.Context(), c.query)
			if err != nil {
				s.Fatalf("sample: %v", err)
			}
			seen, sum := map[string]bool{}, 0.0
			for _, r := range sample.Records {
				if seen[r.Name.String()] || !c.query.Matches(&r.Record) {
					s.Errorf("%+v has %+v", c.query, r)
				}
				seen[r.Name.String()], sum = true, sum+r.Weight
			}
			whole := sample.Looked == sample.Total
			if sample.Total != c.total || whole && sum != c.match || sum < c.match*.5 || sum > c.match*1.5 ||
				limit == 1000 && !whole || !whole && sample.Looked > int64(2*limit) {
				s.Errorf("%+v: looked at %d of %d, of which %v match, want %v",
					c.query, sample.Looked, sample.Total, sum, c.match)
			}
		}
	}
}

// finding: an id is found at each producer that has messages, and at the named ones.
func finding(s *suite) {
	s.bring(message("a", "7"), halfmsg.Dead)
	s.bring(message("b", "7"), halfmsg.Pending)
	s.bring(message("b", "77"), halfmsg.Pending)
	s.bring(message("c", "7"), halfmsg.Done)
	found, err := s.Store.Find(s.Context(), "7", []string{"c", "nobody", "b"})
	if err != nil {
		s.Fatal(err)
	}
	var names []string
	for _, r := range found {
		names = append(names, r.Name.String()+" "+r.State.String())
		if r.Body != nil {
			s.Errorf("%s is found with its body", r.Name)
		}
	}
	if fmt.Sprint(names) != "[a/7 dead b/7 pending c/7 done]" {
		s.Errorf("found %v", names)
	}
}

func stats(s *suite) {
	for state, n := range map[halfmsg.State]int{
		halfmsg.Pending: 3, halfmsg.Sendable: 2, halfmsg.Abandoned: 1,
		halfmsg.Dead: 4, halfmsg.Acknowledged: 2, halfmsg.Done: 1,
	} {
		for i := range n {
			s.bring(message(fmt.Sprintf("p%d", i), state.String()), state)
		}
	}
	got, err := s.Store.Stats(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	want := []halfmsg.Stat{
		{State: halfmsg.Pending, Count: 3},
		{State: halfmsg.Sendable, Count: 2},
		{State: halfmsg.Abandoned, Count: 1},
		{State: halfmsg.Dead, Count: 4},
		{State: halfmsg.Acknowledged, Count: 2},
	}
	if len(got) != len(want) {
		s.Fatalf("got %+v", got)
	}
	if pending := fmt.Sprint(got[0].Producers); pending != "map[p0:1 p1:1 p2:1]" {
		s.Errorf("the pending messages by producer are %s", pending)
	}
	for i, stat := range got {
		if stat.State != want[i].State || stat.Count != want[i].Count {
			s.Errorf("got %+v, want %+v", stat, want[i])
		}
		oldest := s.pages(halfmsg.Query{State: stat.State, Limit: 1}, func() {})[0]
		if !stat.OldestAt.Equal(oldest.CreatedAt) {
			s.Errorf("%s: oldest %v, and the first listed is of %v", stat.State, stat.OldestAt, oldest.CreatedAt)
		}
		var first time.Time
		for _, r := range s.pages(halfmsg.Query{State: stat.State, Limit: 10}, func() {}) {
			if stat.State.HasLoop() && (first.IsZero() || r.DueAt.Before(first)) {
				first = r.DueAt
			}
		}
		if !stat.FirstDueAt.Equal(first) {
			s.Errorf("%s: the first is due %v, want %v", stat.State, stat.FirstDueAt, first)
		}
	}
}

// expiry: unfinished messages never expire, receipts expire after the retention.
func expiry(s *suite) {
	for _, state := range halfmsg.States() {
		if state == halfmsg.None {
			continue
		}
		m := message("expiry", state.String())
		s.bring(m, state)
		got := s.Expiry(s.T, m.Name)
		switch {
		case state.Final() && (got <= 0 || got > s.Retention):
			s.Errorf("the trace of a %s message expires in %v", state, got)
		case !state.Final() && got != 0:
			s.Errorf("a %s message expires in %v", state, got)
		}
		if state.Final() {
			r := s.get(m.Name)
			if r.UpdatedAt.IsZero() || r.Body != nil {
				s.Errorf("the trace of a %s message: %+v", state, r)
			}
		}
	}
	if s.Advance == nil {
		return
	}
	s.Advance(s.Retention + time.Second)
	for _, state := range halfmsg.States() {
		_, err := s.Store.Get(s.Context(), halfmsg.Name{Producer: "expiry", ID: state.String()})
		if gone := errors.Is(err, halfmsg.ErrNotFound); gone != (state.Final() || state == halfmsg.None) {
			s.Errorf("%s after the retention: %v", state, err)
		}
	}
}

func discardFrom(s *suite) {
	states := []halfmsg.State{halfmsg.Pending, halfmsg.Abandoned, halfmsg.Dead}
	for _, state := range states {
		name := s.bring(message("spared", state.String()), state).Name
		for _, from := range states {
			if from == state {
				continue
			}
			s.untouched(name, func() {
				r := s.Store.Discard(s.Context(), []halfmsg.Name{name}, from)[0]
				if !errors.Is(r.Err, halfmsg.ErrIllegal) || r.State != state {
					s.Errorf("discard from %s of a message that is %s: %v, %v", from, state, r.State, r.Err)
				}
			})
		}
		if r := s.Store.Discard(s.Context(), []halfmsg.Name{name}, state)[0]; r.Err != nil || r.State != halfmsg.None {
			s.Errorf("discard from its own state %s: %v, %v", state, r.State, r.Err)
		}
	}
}

func discard(s *suite) {
	for _, state := range []halfmsg.State{halfmsg.Pending, halfmsg.Abandoned, halfmsg.Dead} {
		claim := s.bring(message("gone", state.String()), state)
		if r := s.Store.Discard(s.Context(), []halfmsg.Name{claim.Name}, halfmsg.None)[0]; r.Err != nil ||
			r.State != halfmsg.None {
			s.Fatalf("discard: %v, %v", r.State, r.Err)
		}
		if _, err := s.Store.Get(s.Context(), claim.Name); !errors.Is(err, halfmsg.ErrNotFound) {
			s.Errorf("%s after its discard: %v", state, err)
		}
		s.create(claim.Message) // the name is free again
		if r := s.get(claim.Name); r.ConfirmAttempts != 0 || r.LastError != "" {
			s.Errorf("something of the discarded message is left: %+v", r)
		}
	}
}
