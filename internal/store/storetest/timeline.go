package storetest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// told is a line of a timeline in these tests: event, number, cause.
func told(h halfmsg.Happening) string {
	text := h.What
	if h.Times > 1 {
		text += fmt.Sprintf(" x%d", h.Times)
	}
	if h.Cause != "" {
		text += ": " + h.Cause
	}
	return text
}

// tells fails the test if the timeline of a message differs, or its times are out of order.
func (s *suite) tells(name halfmsg.Name, want ...string) {
	s.Helper()
	record := s.get(name)
	var got []string
	last := time.Time{}
	for _, h := range record.Story() {
		got = append(got, told(h))
		if h.First.IsZero() || h.Last.Before(h.First) || h.First.Before(last) {
			s.Errorf("%s: from %v to %v, after %v", told(h), h.First, h.Last, last)
		}
		last = h.Last
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("the story of %s:\n%s", name, diff)
	}
}

// tick advances a fake clock by a millisecond, so that times show the order.
func (s *suite) tick() {
	if s.Advance != nil {
		s.Advance(time.Millisecond)
	}
}

// story takes a message through every event with a line, and through events without a line.
func story(s *suite) {
	m := message("story", "1")
	s.create(m)
	s.tells(m.Name, "send")
	again := func() halfmsg.Claim { return s.submit(long, m.Name)[0] }
	s.settleClaim(again(), halfmsg.EventUnknown, because("the producer answered UNKNOWN"))
	s.settleClaim(again(), halfmsg.EventReleased)
	s.settleClaim(again(), halfmsg.EventUnknown, because("the producer answered UNKNOWN"))
	s.settleClaim(again(), halfmsg.EventUnreachable, because("connection refused"))
	s.settleClaim(again(), halfmsg.EventReleased, because("shutting down"))
	s.settleClaim(again(), halfmsg.EventGivenUp)
	claim := again()
	s.tells(m.Name, "send", "unknown x2: the producer answered UNKNOWN", "unreachable: connection refused",
		"released: shutting down", "given_up", "submit")
	s.tick()
	s.settleClaim(claim, halfmsg.EventCommitted)
	resend := func() halfmsg.Claim { return s.claimSendable(1, long)[0] }
	s.settleClaim(resend(), halfmsg.EventRefused, because("NO_ROUTE"))
	s.settleClaim(resend(), halfmsg.EventUnsure, because("connection lost"))
	s.settleClaim(resend(), halfmsg.EventExhausted, because("NOT_FOUND"))
	s.tick()
	if r := s.Store.Retry(s.Context(), []halfmsg.Name{m.Name}, "console, 10.0.0.1:99",
		"the exchange is back")[0]; r.Err != nil {
		s.Fatal(r.Err)
	}
	want := []string{
		"send", "unknown x2: the producer answered UNKNOWN", "unreachable: connection refused", "released: shutting down",
		"given_up", "submit", "committed", "refused: NO_ROUTE", "unsure: connection lost", "exhausted: NOT_FOUND",
		"retry: the exchange is back",
	}
	s.tells(m.Name, want...)
	r := s.get(m.Name)
	if by := r.Timeline[len(r.Timeline)-1].By; strings.ReplaceAll(by, " ", "") != "console,10.0.0.1:99" {
		s.Errorf("retried by %q", by)
	}
	if r.LastError != "NOT_FOUND" {
		s.Errorf("the reason of a retry is no error, and the last error is %q", r.LastError)
	}
	for _, listed := range s.pages(halfmsg.Query{State: halfmsg.Sendable, Limit: 5}, func() {}) {
		if listed.Timeline != nil {
			s.Error("a list tells timelines")
		}
	}
	s.settleClaim(resend(), halfmsg.EventAcked)
	s.tells(m.Name, "done")
}

// everyTold wants each event on the timeline of its message, or not, as the table says.
func everyTold(s *suite) {
	for _, move := range halfmsg.Moves() {
		if move.From == halfmsg.None || move.To == halfmsg.None || move.To.Final() {
			continue
		}
		claim := s.bring(message("told", fmt.Sprintf("%s-%d", move.From, move.Event)), move.From)
		before := s.get(claim.Name)
		if r := s.act(claim, move.Event); r.Err != nil {
			s.Fatalf("%s on %s: %v", move.Event, move.From, r.Err)
		}
		after := s.get(claim.Name)
		more := len(after.Timeline) - len(before.Timeline)
		// Handed back without a cause, and submitted while pending: no line.
		ordinary := move.Event == halfmsg.EventReleased || submits(move.Event) && move.From == halfmsg.Pending
		if wants := move.Event.OnTimeline() && !ordinary; wants != (more == 1) {
			s.Errorf("%s on %s: %d more on its timeline", move.Event, move.From, more)
		}
		if more == 1 && after.Timeline[len(after.Timeline)-1].What != move.Event.String() {
			s.Errorf("%s on %s is told as %+v", move.Event, move.From, after.Timeline)
		}
	}
}

// tellers: a line names the instance that reported the event, and the instance whose lease had ended.
func tellers(s *suite) {
	m := message("tellers", "1")
	s.create(m)
	claim := s.submit(long, m.Name)[0]
	owner := s.get(m.Name).LeaseOwner
	s.settleClaim(claim, halfmsg.EventUnreachable, because("away"))
	if got := s.get(m.Name).Timeline; len(got) != 1 || got[0].By != owner || owner == "" {
		s.Errorf("%s is the finder, and the timeline is %+v", owner, got)
	}
	lost := func(take func(lease time.Duration) []halfmsg.Claim) {
		s.Helper()
		take(short)
		first := s.get(m.Name).LeaseOwner
		s.passes(short, "the lease ends", func() bool {
			claims := take(long)
			if len(claims) == 1 {
				claim = claims[0]
			}
			return len(claims) == 1
		})
		now := s.get(m.Name)
		last := now.Timeline[len(now.Timeline)-1]
		if last.What != halfmsg.TakenOver || last.By != now.LeaseOwner || last.Cause != "the lease of "+first+" ended" {
			s.Errorf("%s took over from %s, and the timeline ends with %+v", now.LeaseOwner, first, last)
		}
	}
	lost(func(lease time.Duration) []halfmsg.Claim { return s.claimPending(m.Producer, 1, lease) })
	s.settleClaim(claim, halfmsg.EventCommitted)
	lost(func(lease time.Duration) []halfmsg.Claim { return s.claimSendable(1, lease) })
}

// likeTheModel makes random events and demands the timelines of halfmsg.Timeline.
func likeTheModel(s *suite) {
	random := rand.New(rand.NewPCG(7, 11))
	words := []struct {
		event  halfmsg.Event
		causes []string
	}{
		{halfmsg.EventUnknown, []string{"the producer answered UNKNOWN"}},
		{halfmsg.EventUnreachable, []string{
			"", "away", "a\n\tb  c\x00d\x1b[31m", strings.Repeat("ü", 300), "x" + strings.Repeat("ü", 300),
			strings.Repeat("\U0001F4A3", 60),
			" 1 2 3 unknown x: y ", "%d %s \\n", "a\u0085b\u00a0c\u2028d",
		}},
		{halfmsg.EventReleased, []string{"", "stopping"}},
	}
	for run := range 6 {
		m := message("model", fmt.Sprint(run))
		s.create(m)
		var want halfmsg.Timeline
		for step := range 40 {
			word := words[random.IntN(len(words))]
			cause := word.causes[random.IntN(len(word.causes))]
			if run == 5 && word.event == halfmsg.EventUnreachable { // no two alike
				cause = fmt.Sprint("port ", step)
			}
			s.settleClaim(s.submit(long, m.Name)[0], word.event, because(cause))
			if word.event != halfmsg.EventReleased || cause != "" {
				want = want.Add(halfmsg.Happening{What: word.event.String(), Times: 1, Cause: cause})
			}
			got := s.get(m.Name).Timeline
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(),
				cmpopts.IgnoreFields(halfmsg.Happening{}, "First", "Last", "By")); diff != "" {
				s.Fatalf("run %d, step %d, %s:\n%s", run, step, word.event, diff)
			}
			if len(got) > halfmsg.MaxHappenings {
				s.Fatalf("%d lines", len(got))
			}
		}
	}
}

// longOutage: an outage of days is a single line and displaces no other line, even if its causes always differ.
func longOutage(s *suite) {
	same, varied := message("outage", "same"), message("outage", "varied")
	s.create(same, varied)
	s.settleClaim(s.submit(long, same.Name)[0], halfmsg.EventUnknown, because("UNKNOWN"))
	s.settleClaim(s.submit(long, varied.Name)[0], halfmsg.EventUnknown, because("UNKNOWN"))
	var first, last time.Time
	for i := range 100 {
		s.tick()
		s.settleClaim(s.submit(long, same.Name)[0], halfmsg.EventUnreachable, because("connection refused"))
		s.settleClaim(s.submit(long, varied.Name)[0], halfmsg.EventUnreachable, because(fmt.Sprint("reset on port ", i)))
		if last = s.get(same.Name).UpdatedAt; i == 0 {
			first = last
		}
	}
	s.tells(same.Name, "send", "unknown: UNKNOWN", "unreachable x100: connection refused")
	if h := s.get(same.Name).Timeline[1]; !h.First.Equal(first) || !h.Last.Equal(last) {
		s.Errorf("the outage lasted from %v to %v, and is told from %v to %v", first, last, h.First, h.Last)
	}
	r := s.get(varied.Name)
	if len(r.Timeline) != halfmsg.MaxHappenings || told(r.Timeline[0]) != "unknown: UNKNOWN" {
		s.Errorf("the first event was pushed out: %+v", r.Timeline)
	}
	times := 0
	for _, h := range r.Timeline[1:] {
		times += h.Times
	}
	if newest := r.Timeline[len(r.Timeline)-1]; times != 100 || newest.Cause != "reset on port 99" {
		s.Errorf("%d times, the last for %s", times, newest.Cause)
	}
}

// storiesEnd: a timeline does not show dropped content.
func storiesEnd(s *suite) {
	m := message("ends", "acknowledged")
	s.create(m)
	s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventUnreachable, because("away"))
	claim := s.submit(long, m.Name)[0]
	s.settleClaim(claim, halfmsg.EventCommitted, holding(long))
	s.settleClaim(claim, halfmsg.EventAckedMarked, holding(long))
	s.tells(m.Name, "send")
	s.settleClaim(claim, halfmsg.EventMarkerKept, because("away again"))
	s.tells(m.Name, "send", "marker_kept: away again")

	m = message("ends", "rolled-back")
	s.create(m)
	s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventUnreachable, because("away"))
	s.Store.Rollback(s.Context(), []halfmsg.Name{m.Name})
	s.tells(m.Name, "rolled_back")

	m = message("ends", "discarded")
	s.create(m)
	s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventUnreachable, because("away"))
	s.Store.Discard(s.Context(), []halfmsg.Name{m.Name}, halfmsg.None)
	s.create(m)
	s.tells(m.Name, "send")
}
