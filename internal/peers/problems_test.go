package peers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/peerstats"
	"github.com/msghandler/msghandler/test/must"
)

// troubled is a coordinator with problems that a test changes.
type troubled struct {
	*peers.Peers
	problems []peers.Problem
	// checking is how long the checks take.
	checking time.Duration
	// ends are those that the coordinator has to report.
	ends []peers.End
}

func newTroubled(instance string) *troubled {
	t := &troubled{}
	started := time.Now()
	t.Peers = peers.New(peers.Config{
		Self: func(now time.Time) peers.Coordinator {
			return peers.Coordinator{Instance: instance, Place: instance, StartedAt: started, SeenAt: now}
		},
		Refusals: func() []peerstats.Refusal { return nil },
		Counts:   func(time.Time) peerstats.Report { return peerstats.Report{} },
		Problems: func(context.Context, time.Time) []peers.Problem {
			time.Sleep(t.checking)
			return slices.Clone(t.problems)
		},
		Attending: func() []string { return nil },
		Ended:     func(all []peers.End) { t.ends = append(t.ends, all...) },
	})
	return t
}

// passes lets so many reports pass.
func (o *troubled) passes(t *testing.T, s *store, reports int) {
	t.Helper()
	for range reports {
		exchange(t, o.Peers, s)
		time.Sleep(peers.Interval)
	}
}

// told are problems in one line: name, seconds of the beginning and of the end since start, coordinators.
func told(all []peers.Problem, start time.Time) string {
	var parts []string
	for _, p := range all {
		end := "lasts"
		if !p.Until.IsZero() {
			end = fmt.Sprint(p.Until.Sub(start).Seconds())
		}
		parts = append(parts, fmt.Sprintf("%s %v-%s %d>%d %v", p.Name, p.Since.Sub(start).Seconds(), end, p.First, p.Count,
			p.Coordinators))
	}
	return strings.Join(parts, "; ")
}

func history(t *testing.T, p *troubled, s *store) []peers.Problem {
	t.Helper()
	all, err := p.History(t.Context(), s, time.Now().Add(-time.Hour), time.Now().Add(time.Second))
	must.Succeed(t, err)
	return all
}

var brokerAway = peers.Problem{Name: "rabbitmq-away", Severity: peers.Trouble, What: "refused", Remedy: "start it"}

func letters(n int64) peers.Problem {
	return peers.Problem{Name: "letters-waiting", Severity: peers.Warning, What: "letters", Remedy: "replay", Count: n}
}

func TestEndedProblemsAreRecordedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, s := time.Now(), newTroubled("own"), &store{}
		own.problems = []peers.Problem{letters(3), brokerAway}
		own.passes(t, s, 2)
		own.problems = []peers.Problem{letters(7)}
		own.passes(t, s, 2) // the pause is too short for an end
		own.problems = []peers.Problem{letters(8), brokerAway}
		own.passes(t, s, 1)
		if got := told(own.Problems(own.problems, time.Now()), start); got !=
			"rabbitmq-away 0-lasts 0>0 [own]; letters-waiting 0-lasts 3>8 [own]" {
			t.Errorf("present are %s", got)
		}
		own.problems = nil
		if got := told(own.Problems([]peers.Problem{{Name: "ends", Since: start, Count: 2}}, time.Now()), start); got !=
			"ends 0-lasts 2>2 [own]" {
			t.Errorf("an unknown problem is %s", got)
		}
		own.passes(t, s, 8)
		if len(s.recorded) != 2 {
			t.Errorf("the record has %v", s.recorded)
		}
		if got := told(history(t, own, s), start); !strings.Contains(got, "rabbitmq-away 0-25 0>0 [own]") ||
			!strings.Contains(got, "letters-waiting 0-25 3>8 [own]") {
			t.Errorf("ended are %s", got)
		}
	})
}

// Two queues have one cause. Each has its own past, and the record has their sum.
func TestFiguresOfOneCauseStayApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, other, s, theirs := time.Now(), newTroubled("own"), newTroubled("other"), &store{}, &store{}
		of := func(queue string, n int64) peers.Problem {
			p := letters(n)
			p.Subject = queue
			return p
		}
		other.problems = []peers.Problem{of("a", 3), of("b", 5)}
		other.passes(t, theirs, 1)
		s.others = []peers.Entry{entryOf(theirs, "other", start)}
		own.problems = []peers.Problem{of("a", 3), of("b", 5)}
		own.passes(t, s, 2)
		own.problems = []peers.Problem{of("a", 3), of("b", 6)}
		own.passes(t, s, 1)
		if got := told(own.Problems(own.problems, time.Now()), start); got !=
			"letters-waiting 0-lasts 3>3 [own other]; letters-waiting 0-lasts 5>6 [own other]" {
			t.Errorf("present are %s", got)
		}
		if got := told(history(t, own, s), start); got != "letters-waiting 0-lasts 8>9 [own other]" {
			t.Errorf("listed are %s", got)
		}
		own.problems = []peers.Problem{of("b", 6)}
		own.passes(t, s, 1)
		if got := told(own.Problems(own.problems, time.Now()), start); got != "letters-waiting 0-lasts 5>6 [own other]" {
			t.Errorf("of the other queue %s", got)
		}
	})
}

func TestEndsAreWrittenAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, s := time.Now(), newTroubled("own"), &store{}
		own.problems = []peers.Problem{brokerAway}
		own.passes(t, s, 1)
		s.err = errors.New("redis is away")
		own.problems = nil
		for range 10 {
			if err := own.Exchange(t.Context(), s); err == nil {
				t.Error("without the store the exchange succeeds")
			}
			time.Sleep(peers.Interval)
		}
		s.err = nil
		own.passes(t, s, 2)
		if got := told(history(t, own, s), start); got != "rabbitmq-away 0-5 0>0 [own]" || len(s.recorded) != 1 {
			t.Errorf("ended are %s", got)
		}
	})
}

// A full Redis takes reports: the exchange goes on, and the record waits for room.
func TestFullStoreDelaysRecordOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, s := time.Now(), newTroubled("own"), &store{full: fmt.Errorf("%w: OOM", halfmsg.ErrFull)}
		own.problems = []peers.Problem{brokerAway}
		own.passes(t, s, 1)
		own.problems = nil
		own.passes(t, s, 10)
		if got := told(history(t, own, s), start); got != "rabbitmq-away 0-5 0>0 [own]" || len(s.recorded) != 0 {
			t.Errorf("of a full store %s are told, and %v recorded", got, s.recorded)
		}
		must.Succeed(t, own.Leave(t.Context(), s))
		s.full = nil
		own.passes(t, s, 2)
		if got := told(history(t, own, s), start); got != "rabbitmq-away 0-5 0>0 [own]" || len(s.recorded) != 1 {
			t.Errorf("after the store has room: %s", got)
		}
	})
}

// entryOf is the report of another coordinator, as its store has it since a time.
func entryOf(s *store, instance string, since time.Time) peers.Entry {
	return peers.Entry{Instance: instance, Text: s.own, Ago: time.Since(since), Unseen: time.Since(since)}
}

func TestProblemsOfOthersAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, other, s, theirs := time.Now(), newTroubled("own"), newTroubled("other"), &store{}, &store{}
		other.problems = []peers.Problem{brokerAway}
		other.passes(t, theirs, 1)
		own.problems = []peers.Problem{letters(1)}
		present := func(ended bool) string {
			e := entryOf(theirs, "other", start)
			e.Ended, e.Unreported = ended, ended && len(s.recorded) == 0
			s.others = []peers.Entry{e}
			own.passes(t, s, 1)
			return told(own.Problems(own.problems, time.Now()), start)
		}
		if got := present(false); got != "rabbitmq-away 0-lasts 0>0 [other]; letters-waiting 5-lasts 1>1 [own]" {
			t.Errorf("with the trouble of another coordinator: %s", got)
		}
		own.problems = []peers.Problem{brokerAway}
		if got := present(false); got != "rabbitmq-away 0-lasts 0>0 [own other]" {
			t.Errorf("one cause of two coordinators: %s", got)
		}
		if got := present(true); got != "rabbitmq-away 0-lasts 0>0 [own]" {
			t.Errorf("the other coordinator was killed: %s", got)
		}
		own.problems = nil
		for range 10 {
			present(true)
		}
		if got := told(history(t, own, s), start); got !=
			"letters-waiting 5-10 1>1 [own]; rabbitmq-away 0-20 0>0 [own other]" || len(s.recorded) != 3 {
			t.Errorf("ended are %s", got)
		}
	})
}

// An ended problem may come back, so its coordinator records it half a minute later, and reports it until then.
func TestEndElsewhereIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, other, s, theirs := time.Now(), newTroubled("own"), newTroubled("other"), &store{}, &store{}
		other.problems = []peers.Problem{brokerAway}
		other.passes(t, theirs, 2)
		other.problems = nil
		for i := range 12 {
			exchange(t, other.Peers, theirs)
			s.others, s.recorded = []peers.Entry{entryOf(theirs, "other", time.Now())}, theirs.recorded
			exchange(t, own.Peers, s)
			if got := told(history(t, own, s), start); got != "rabbitmq-away 0-10 0>0 [other]" {
				t.Errorf("%d reports after the end: %q", i, got)
			}
			time.Sleep(peers.Interval)
		}
		if len(theirs.recorded) != 1 {
			t.Errorf("the record has %v", theirs.recorded)
		}
	})
}

// What every coordinator finds by itself is recorded once, and has no place.
func TestOneCoordinatorRecordsDerivedProblems(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, first, second, s, theirs := time.Now(), newTroubled("a"), newTroubled("b"), &store{}, &store{}
		derived := peers.Problem{Name: "producer-away", Severity: peers.Trouble, Remedy: "start it", Derived: true}
		for i := range 12 {
			first.problems, second.problems = []peers.Problem{derived}, []peers.Problem{derived}
			if i > 1 {
				first.problems, second.problems = nil, nil
			}
			exchange(t, first.Peers, s)
			theirs.others = []peers.Entry{entryOf(s, "a", time.Now())}
			exchange(t, second.Peers, theirs)
			s.others = []peers.Entry{entryOf(theirs, "b", time.Now())}
			time.Sleep(peers.Interval)
		}
		if got := told(history(t, first, s), start); got != "producer-away 0-10 0>0 []" || len(theirs.recorded) != 0 {
			t.Errorf("%s; the second coordinator recorded %v", got, theirs.recorded)
		}
	})
}

// A coordinator that starts while a problem ends knows nothing of the problem, and nothing of it may be lost.
func TestLateCoordinatorLeavesTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, second, s, theirs := time.Now(), newTroubled("b"), &store{}, &store{}
		second.problems = []peers.Problem{
			{Name: "producer-away", Severity: peers.Trouble, Remedy: "start it", Derived: true},
		}
		second.passes(t, s, 2)
		second.problems = nil
		second.passes(t, s, 1)
		first := newTroubled("a")
		for range 10 {
			exchange(t, first.Peers, theirs)
			s.others = []peers.Entry{entryOf(theirs, "a", time.Now())}
			second.passes(t, s, 1)
		}
		if got := told(history(t, second, s), start); got != "producer-away 0-10 0>0 []" || len(theirs.recorded) != 0 {
			t.Errorf("%q; the first coordinator recorded %v", got, theirs.recorded)
		}
	})
}

// The coordinator that records what all find may be killed before.
func TestDerivedProblemsOfKilledAreRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, first, second, s, theirs := time.Now(), newTroubled("a"), newTroubled("b"), &store{}, &store{}
		first.problems = []peers.Problem{{Name: "producer-away", Severity: peers.Trouble, Remedy: "start it", Derived: true}}
		first.passes(t, theirs, 1)
		first.problems = nil
		first.passes(t, theirs, 1)
		seen := start.Add(peers.Interval)
		killed := entryOf(theirs, "a", seen)
		killed.Ended, killed.Unreported = true, true
		s.others = []peers.Entry{killed, entryOf(theirs, "aa", seen)} // aa runs, and writes the record
		second.passes(t, s, 1)
		if got := told(history(t, second, s), start); len(s.recorded) != 1 || got != "producer-away 0-5 0>0 [a]" {
			t.Errorf("%q; the record has %v", got, s.recorded)
		}
	})
}

// The record has an event right after the report: of its coordinator the others list no second one.
func TestEventsOfOthersAreListedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, other, s, theirs := newTroubled("own"), newTroubled("other"), &store{}, &store{}
		other.Note(peers.Problem{Name: "coordinator-started", Since: time.Now(), Until: time.Now()})
		exchange(t, other.Peers, theirs)
		s.others, s.recorded = []peers.Entry{entryOf(theirs, "other", time.Now())}, theirs.recorded
		exchange(t, own.Peers, s)
		if got := history(t, own, s); len(got) != 1 {
			t.Errorf("listed are %v", got)
		}
	})
}

// Pages ask for the record each time that they are refreshed.
func TestRecordIsReadOncePerExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, s := newTroubled("own"), &store{}
		own.problems = []peers.Problem{brokerAway}
		own.passes(t, s, 1)
		own.problems = nil
		own.passes(t, s, 10)
		for range 5 {
			if got := history(t, own, s); len(got) != 1 {
				t.Errorf("listed are %v", got)
			}
		}
		own.passes(t, s, 1)
		history(t, own, s)
		if len(s.reads) != 2 || !s.reads[1].Equal(s.recorded[0].At) {
			t.Errorf("the record was read since %v", s.reads)
		}
	})
}

// A page waits for a slow store alone: neither the exchange nor a page whose reader has left.
func TestSlowRecordHoldsUpNoExchange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		own, s := newTroubled("own"), &store{silent: make(chan struct{})}
		page := make(chan error, 1)
		go func() {
			_, err := own.History(t.Context(), s, time.Time{}, time.Now())
			page <- err
		}()
		synctest.Wait()
		exchange(t, own.Peers, s)
		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := own.History(left, s, time.Time{}, time.Now()); !errors.Is(err, context.Canceled) {
			t.Errorf("a page without a reader: %v", err)
		}
		close(s.silent)
		must.Succeed(t, <-page)
		if history(t, own, s); len(s.reads) != 2 {
			t.Errorf("the record was read %d times: an exchange has passed since the first read", len(s.reads))
		}
	})
}

// A report from before a silence tells nothing of now.
func TestSilentCoordinatorsHaveNoTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, other, s, theirs := time.Now(), newTroubled("own"), newTroubled("other"), &store{}, &store{}
		other.problems = []peers.Problem{brokerAway}
		other.passes(t, theirs, 1)
		time.Sleep(silence)
		s.others = []peers.Entry{entryOf(theirs, "other", start)}
		own.passes(t, s, 1)
		if got := own.Problems(nil, time.Now()); len(got) > 0 {
			t.Errorf("present are %+v", got)
		}
	})
}

// A restart does not end a problem, and a problem of several coordinators is one.
func TestTimelineJoinsOneCause(t *testing.T) {
	t.Parallel()
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	of := func(instance string, from, to int) peers.Problem {
		p := brokerAway
		p.Coordinators, p.Since = []string{instance}, at(from)
		if to > 0 {
			p.Until = at(to)
		}
		return p
	}
	started := peers.Problem{Name: "coordinator-started", Since: at(31), Until: at(31), Coordinators: []string{"a2"}}
	again := started
	again.Since, again.Until = at(32), at(32)
	got := told(peers.Timeline([]peers.Problem{
		of("a2", 35, 50), of("a", 0, 30), of("b", 2, 40), of("a2", 500, 0), of("b", 300, 310), started, again,
	}), now)
	if want := "rabbitmq-away 500-lasts 0>0 [a2]; rabbitmq-away 300-310 0>0 [b]; coordinator-started 32-32 0>0 [a2]; " +
		"coordinator-started 31-31 0>0 [a2]; rabbitmq-away 0-50 0>0 [a b a2]"; got != want {
		t.Errorf("the timeline is %s, want %s", got, want)
	}
}

// Checks of Redis and of brokers may hang for seconds, which must not move the times of a report.
func TestSlowChecksMoveNoTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, other, s, theirs := time.Now(), newTroubled("own"), newTroubled("other"), &store{}, &store{}
		other.problems, other.checking = []peers.Problem{brokerAway}, 2*time.Second
		exchange(t, other.Peers, theirs)
		s.others = []peers.Entry{entryOf(theirs, "other", time.Now())}
		exchange(t, own.Peers, s)
		if got := told(own.Problems(nil, time.Now()), start); got != "rabbitmq-away 0-lasts 0>0 [other]" {
			t.Errorf("present are %s", got)
		}
	})
}

// The last report of an ended coordinator is kept for an hour. Its problem is no part of a later one.
func TestLaterProblemHasOwnBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, own, other, s, theirs := time.Now(), newTroubled("own"), newTroubled("other"), &store{}, &store{}
		other.problems = []peers.Problem{brokerAway}
		other.passes(t, theirs, 1)
		time.Sleep(10 * time.Minute)
		e := entryOf(theirs, "other", start)
		e.Ended = true
		s.others = []peers.Entry{e}
		own.passes(t, s, 1)
		own.problems = []peers.Problem{brokerAway}
		own.passes(t, s, 3)
		if got := told(own.Problems(own.problems, time.Now()), start); got != "rabbitmq-away 610-lasts 0>0 [own]" {
			t.Errorf("present are %s", got)
		}
	})
}

// Each process of a crash loop starts, and ends with its problems. The record has the first of them in ten minutes.
func TestRestartLoopDoesNotFillRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(5 * time.Minute) // the clock of the test begins with ten minutes
		own, s := newTroubled("place"), &store{}
		for i := range 4 {
			seen := time.Duration(i)*time.Minute + time.Second
			e := entry(t, peers.Report{
				Coordinator: peers.Coordinator{
					Instance: fmt.Sprint("loop", i), Place: "place", StartedAt: time.Now().Add(-seen - 50*time.Second),
				},
				Problems: []peers.Problem{{Name: "rabbitmq-away", Severity: peers.Trouble, Since: time.Now()}},
			}, seen)
			e.Ended, e.Unreported = true, true
			s.others = append(s.others, e)
		}
		own.Note(peers.Problem{Name: "coordinator-started", Since: time.Now(), Until: time.Now()})
		own.passes(t, s, 1)
		if len(s.recorded) != 1 || !strings.Contains(s.recorded[0].Text, "loop3") {
			t.Errorf("the record has %v", s.recorded)
		}
		for _, end := range own.ends {
			if end.InLoop != (end.Instance != "loop3") {
				t.Errorf("the end of %s is in the loop: %t", end.Instance, end.InLoop)
			}
		}
		if len(own.ends) != 4 {
			t.Errorf("reported are %v", own.ends)
		}
	})
}

// The next process at a place goes on with the problem of the stopped one.
func TestProblemsOutliveRestarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, first, s := time.Now(), newTroubled("first"), &store{}
		first.problems = []peers.Problem{brokerAway}
		first.passes(t, s, 2)
		must.Succeed(t, first.Leave(t.Context(), s))
		stopped := entryOf(s, "first", time.Now())
		time.Sleep(time.Second)
		stopped.Ago = time.Second
		next := newTroubled("next")
		next.problems, s.others = first.problems, []peers.Entry{stopped}
		next.passes(t, s, 2)
		if got := told(history(t, next, s), start); got != "rabbitmq-away 0-lasts 0>0 [next first]" {
			t.Errorf("problems are %s", got)
		}
	})
}
