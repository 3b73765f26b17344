package peers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/peerstats"
	"github.com/msghandler/msghandler/test/must"
)

// silence is how long the passing part of a report holds by default.
const silence = 4 * peers.Interval

// store has the reports of others, and keeps the last own report.
type store struct {
	others   []peers.Entry
	own      peers.Text
	findEnds bool
	err      error
	// full is why the record takes nothing, though reports are taken.
	full error
	// recorded is the record of ended problems, the oldest first.
	recorded []peers.Recorded
	// reads are the times since which the record was read.
	reads []time.Time
	// silent keeps a reader of the record waiting; nil keeps none.
	silent chan struct{}
}

func (s *store) RecordEnded(_ context.Context, texts []string) error {
	if s.full != nil {
		return s.full
	}
	for _, text := range texts {
		s.recorded = append(s.recorded, peers.Recorded{At: time.Now(), Text: text})
	}
	return s.err
}

func (s *store) ReadEnded(_ context.Context, since time.Time) ([]peers.Recorded, error) {
	if s.silent != nil {
		<-s.silent
	}
	s.reads = append(s.reads, since)
	return s.recorded, s.err
}

func (s *store) ShareReport(_ context.Context, own peers.Text, _ time.Duration, findEnds bool) ([]peers.Entry, error) {
	if s.err != nil {
		return nil, s.err
	}
	s.own, s.findEnds = own, findEnds
	return s.others, nil
}

// counted are counts with a producer.
func counted(stored int64, failedAt time.Time) *peerstats.Report {
	return &peerstats.Report{
		Rates:     peerstats.Rates{In: float64(stored)},
		Producers: []peerstats.Producer{{Name: "orders", Stored: stored, FailedAt: failedAt}},
	}
}

// ownValues is the configuration of the coordinator that reads the reports of others.
var ownValues = map[string]string{"confirm.after": "2s"}

// alone is a coordinator that knows no other yet.
func alone(ended func([]peers.End)) *peers.Peers {
	return peers.New(peers.Config{
		Self: func(now time.Time) peers.Coordinator {
			return peers.Coordinator{
				Instance: "own", StartedAt: now.Add(-time.Hour), SeenAt: now, Config: peers.NewConfiguration(ownValues),
			}
		},
		Refusals: func() []peerstats.Refusal {
			now := time.Now()
			return []peerstats.Refusal{{Producer: "orders", Reason: "why", Count: 1, FirstAt: now, LastAt: now, Cause: "own"}}
		},
		Counts:    func(time.Time) peerstats.Report { return *counted(1, time.Time{}) },
		Attending: func() []string { return []string{"orders"} },
		Ended:     ended,
	})
}

// entry is the entry of a coordinator that reported ago, by a clock that is a day ahead.
func entry(t *testing.T, r peers.Report, ago time.Duration) peers.Entry {
	t.Helper()
	at, day := time.Now().Add(-ago), 24*time.Hour
	r.StartedAt = r.StartedAt.Add(day)
	for i := range r.Refusals {
		r.Refusals[i].FirstAt, r.Refusals[i].LastAt = r.Refusals[i].FirstAt.Add(day), r.Refusals[i].LastAt.Add(day)
	}
	if r.Counts != nil {
		r.Counts.Shift(day)
	}
	text, err := r.Write(at.Add(day))
	must.Succeed(t, err)
	return peers.Entry{Instance: r.Instance, Text: text, Ago: ago, Unseen: ago}
}

func exchange(t *testing.T, p *peers.Peers, s *store) {
	t.Helper()
	must.Succeed(t, p.Exchange(t.Context(), s))
}

// Clocks differ: the ages in a report count, and not its times.
func TestReportsSurviveClocksThatDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		failed := now.Add(-time.Minute)
		r := peers.Report{
			Coordinator: peers.Coordinator{
				Instance: "other", Place: "host 9090", Version: "v1", GRPC: "[::]:9090", HTTP: "127.0.0.1:9091",
				StartedAt: now.Add(-time.Hour), Config: peers.NewConfiguration(map[string]string{"confirm.after": "2s"}),
			},
			Refusals: []peerstats.Refusal{
				{Producer: "orders", Reason: "why", Count: 2, FirstAt: failed, LastAt: failed, Cause: "theirs"},
				{Producer: "old", Reason: "why", FirstAt: failed, LastAt: now.Add(-peers.RefusalMemory - time.Second)},
			},
			Counts: counted(6, failed), Attending: []string{"orders", "stock"},
		}
		p, s := alone(nil), &store{others: []peers.Entry{entry(t, r, 3*time.Second)}}
		exchange(t, p, s)
		all := p.Coordinators(now)
		c := all[1]
		if c.Instance != "other" {
			c = all[0]
		}
		if len(all) != 2 || !c.StartedAt.Equal(now.Add(-time.Hour)) || !c.SeenAt.Equal(now.Add(-3*time.Second)) ||
			c.State != peers.Running || fmt.Sprint(c.Config.Values) != "map[confirm.after:2s]" || c.GRPC != "[::]:9090" {
			t.Errorf("read is %+v", c)
		}
		refusals := p.Refusals(now)
		if len(refusals) != 1 || refusals[0].Count != 3 || !refusals[0].FirstAt.Equal(failed) || refusals[0].Cause != "own" {
			t.Errorf("refused are %+v", refusals)
		}
		if attending := p.Attending(now); fmt.Sprint(attending) != "[orders stock]" {
			t.Errorf("attending are %v", attending)
		}
		sums := p.Sums(now)
		if orders := sums.Producers()[0]; sums.Coordinators != 2 || orders.Stored != 7 || !orders.FailedAt.Equal(failed) {
			t.Errorf("the sums are %+v", sums)
		}
	})
}

// A coordinator with defaults alone differs by keys. One with too much to share differs as a whole.
func TestDefaultsDifferByTheirKeys(t *testing.T) {
	t.Parallel()
	large := map[string]string{}
	for i := range 2000 {
		large[fmt.Sprintf("producers.p%d.target", i)] = "orders.shop.svc:9000"
	}
	for _, c := range []struct {
		values map[string]string
		drift  string
	}{
		{nil, "[{confirm.after map[:[other] 2s:[own]]}]"},
		{large, "[]"},
	} {
		r := peers.Report{
			Coordinator: peers.Coordinator{Instance: "other", Place: "host", Config: peers.NewConfiguration(c.values)},
			Counts:      counted(1, time.Time{}),
		}
		p := alone(nil)
		exchange(t, p, &store{others: []peers.Entry{entry(t, r, time.Second)}})
		now := time.Now()
		s := peers.SurveyOf(p.Coordinators(now), now)
		if got := fmt.Sprint(s.Drift); got != c.drift || len(s.Hashes) != 2 {
			t.Errorf("of %d keys: the differences are %s among %d configurations, want %s",
				len(c.values), got, len(s.Hashes), c.drift)
		}
	}
}

// A report that cannot be read, or is too old, is unknown: it counts nowhere, and hides no other report and no end.
func TestUnreadableReportsAreUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := peers.Report{Coordinator: peers.Coordinator{Instance: "other"}, Counts: counted(6, time.Time{})}
		whole := entry(t, r, time.Second)
		expired, halfRead, unread := whole, whole, whole
		expired.Passing, halfRead.Passing = "", "no JSON"
		unread.Lasting, unread.Instance = `[{"of":"another version"}]`, "killed"
		unread.Ended, unread.Unreported = true, true
		var reported []peers.End
		p := alone(func(ends []peers.End) { reported = append(reported, ends...) })
		empty := peers.Entry{Instance: "empty", Text: peers.Text{Lasting: "{}"}}
		s := &store{others: []peers.Entry{unread, halfRead, whole, expired, empty}}
		exchange(t, p, s)
		now := time.Now()
		if n, sums := len(p.Coordinators(now)), p.Sums(now); n != 3 || sums.Coordinators != 2 || sums.Rates.In != 7 {
			t.Errorf("%d coordinators are known, and the sums are %+v", n, sums)
		}
		if ends := p.Ends(time.Minute, now); len(ends) != 1 || ends[0].Instance != "killed" || len(reported) != 1 {
			t.Errorf("ended are %v, and reported are %v", ends, reported)
		}
		// While the store is away nothing is read, and the counts of the others become too old.
		s.err = errors.New("redis is away")
		time.Sleep(silence)
		if err := p.Exchange(t.Context(), s); !errors.Is(err, s.err) {
			t.Errorf("without the store: %v", err)
		}
		now = time.Now()
		if n, sums := len(p.Coordinators(now)), p.Sums(now); n != 3 || sums.Coordinators != 1 {
			t.Errorf("without the store %d coordinators are known, and the sums are %+v", n, sums)
		}
		if ends := p.Ends(time.Second, now); len(ends) > 0 {
			t.Errorf("lately ended are %v", ends)
		}
	})
}

// While the store may have been the silent side, silence of another coordinator proves nothing.
func TestEndsAreSoughtWithoutDoubt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s := alone(nil), &store{}
		for _, step := range []struct {
			pass  time.Duration
			doubt bool
			want  bool
		}{
			{0, false, false},
			{silence, false, false},
			{1, false, true},
			{0, true, false},
			{silence + 1, false, true},
		} {
			time.Sleep(step.pass)
			if step.doubt {
				p.Doubt(time.Now())
			}
			if exchange(t, p, s); s.findEnds != step.want {
				t.Errorf("%+v: ends are sought: %t", step, s.findEnds)
			}
		}
	})
}

// After a failed part the stop is no clean one, and a crash report of the others must not be prevented.
func TestOnlyCleanStopsAreTold(t *testing.T) {
	t.Parallel()
	p, s := alone(nil), &store{}
	if err := p.Leave(t.Context(), s); err != nil || !s.own.Stopped || s.own.Lasting == "" || s.own.Passing != "" {
		t.Errorf("told is %+v, %v", s.own, err)
	}
	s.own = peers.Text{}
	p.Break()
	if err := p.Leave(t.Context(), s); err != nil || s.own.Stopped {
		t.Errorf("after a failed part told is %+v, %v", s.own, err)
	}
}

func TestReportsAreBounded(t *testing.T) {
	t.Parallel()
	r := peers.Report{Counts: &peerstats.Report{}}
	long := strings.Repeat("é", 1000)
	for i := range 1000 {
		r.Problems = append(r.Problems, peers.Problem{Name: fmt.Sprint(i), What: long, Why: long, Remedy: long})
		r.Refusals = append(r.Refusals, peerstats.Refusal{Producer: fmt.Sprint(i), Cause: strings.Repeat("é", 1000)})
	}
	text, err := r.Write(time.Now())
	if err != nil || len(text.Lasting) > 20<<10 || strings.Count(text.Lasting, "producer") != 20 ||
		strings.Count(text.Lasting, "remedy") != 10 ||
		strings.Contains(text.Lasting+text.Passing, "\n") {
		t.Errorf("the report has %d bytes, %v", len(text.Lasting), err)
	}
}
