package peers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/peerstats"
)

const (
	// Interval is how often a coordinator reports.
	Interval = 5 * time.Second
	// mostMissed is for how many intervals the passing part of a report holds. A coordinator that has not stopped cleanly
	// counts as ended after the same silence. A coordinator counts four times a second in the store, and after an outage
	// of the store again within ten seconds.
	mostMissed = 4
	// Memory is for how long a report, and the end of its coordinator, is told.
	Memory = time.Hour
	// MaxReports is how many reports are kept: a crash loop must not fill the store.
	MaxReports = 300
	// RefusalMemory is for how long a refusal is told: longer than most producers are silent by day.
	RefusalMemory = 10 * time.Minute
)

// Entry is the report of another coordinator in the store.
type Entry struct {
	Instance string
	Text
	// Ago is the age of the report, and Unseen how long the coordinator has been silent, both by the store's clock.
	Ago, Unseen time.Duration
	// Ended says that the coordinator ended without a clean stop, and Unreported that this caller has to report the end:
	// no other coordinator has.
	Ended, Unreported bool
}

// Store keeps the reports.
type Store interface {
	// ShareReport hands the report of this coordinator to the others and returns theirs, the latest first. A coordinator
	// that was silent for longer than silence has ended; findEnds asks for ends that no coordinator has noticed yet.
	ShareReport(ctx context.Context, own Text, silence time.Duration, findEnds bool) ([]Entry, error)
	// RecordEnded adds texts to the record of ended problems, which holds MaxEnded of the last EndedMemory.
	RecordEnded(ctx context.Context, texts []string) error
	// ReadEnded returns the entries of the record that were written at a time or later.
	ReadEnded(ctx context.Context, since time.Time) ([]Recorded, error)
}

// End is the end of a coordinator that did not stop: killed, crashed or hanging.
type End struct {
	Instance   string
	LastSeenAt time.Time
	// InLoop says that the coordinator was one of many in a restart loop, which the record of problems leaves out.
	InLoop bool
}

// Config is what Peers needs.
type Config struct {
	// Interval is how often each coordinator reports. 0: Interval.
	Interval time.Duration
	// Self describes this coordinator, without its counts.
	Self func(now time.Time) Coordinator
	// Refusals and Counts are those of this coordinator.
	Refusals func() []peerstats.Refusal
	Counts   func(now time.Time) peerstats.Report
	// Problems are the problems of this coordinator. Nil: it has none.
	Problems func(ctx context.Context, now time.Time) []Problem
	// Attending are the producers with a stream at this coordinator.
	Attending func() []string
	// Ended is called with the ends that this coordinator has to report, the latest first. Nil: nothing is reported.
	Ended func(unreported []End)
}

// Peers knows the other coordinators by their reports. A Peers is safe for concurrent use, except Exchange.
type Peers struct {
	config Config
	// silence is how long the passing part of a report holds.
	silence time.Duration
	others  atomic.Pointer[others]
	// doubtedAt is when silence last proved nothing, in Unix nanoseconds.
	doubtedAt atomic.Int64
	broken    atomic.Bool
	tracker   tracker
	record    *record
}

// others is what was read last.
type others struct {
	reports []Report
	ends    []End
}

// New returns a Peers that knows no other coordinator. The store may have been unavailable until now, so a silent
// coordinator is no ended one for a while.
func New(c Config) *Peers {
	p := &Peers{config: c, silence: mostMissed * cmp.Or(c.Interval, Interval), record: newRecord()}
	p.others.Store(&others{})
	p.Doubt(time.Now())
	return p
}

// Doubt says that the store, or its clock, may be why coordinators were silent up to now.
func (p *Peers) Doubt(now time.Time) { p.doubtedAt.Store(now.UnixNano()) }

// Break says that a part of this coordinator has failed, so the stop that follows is not clean.
func (p *Peers) Break() { p.broken.Store(true) }

// Exchange writes the report of this coordinator and reads those of the others. Problems that have ended go into the
// record.
func (p *Peers) Exchange(ctx context.Context, store Store) error {
	p.record.outdate()
	now := time.Now()
	if p.config.Problems != nil {
		p.tracker.look(now, p.ownOnes(p.config.Problems(ctx, now)), p.reported())
		// A check that hangs takes seconds. Readers compare the time of a report with the time at which the store got it.
		now = time.Now()
	}
	own := p.own(now)
	text, err := own.Write(now)
	if err != nil {
		return err
	}
	findEnds := now.Sub(time.Unix(0, p.doubtedAt.Load())) > p.silence
	entries, err := store.ShareReport(ctx, text, p.silence, findEnds)
	if err != nil {
		return err
	}
	p.learn(entries, now)
	return p.recordEnded(ctx, store, now)
}

// learn reads the reports of the others, and reports the ends that no other coordinator has.
func (p *Peers) learn(entries []Entry, now time.Time) {
	var found others
	var unreported []End
	var last []Report // of the unreported ends
	for i := range entries {
		e := &entries[i]
		if e.Ended {
			found.ends = append(found.ends, End{Instance: e.Instance, LastSeenAt: now.Add(-e.Unseen)})
		}
		// A report that cannot be read comes from another version: what it says is unknown, and counts nowhere.
		r, err := e.read(now)
		if err == nil {
			found.reports = append(found.reports, r)
		}
		if e.Unreported {
			unreported, last = append(unreported, End{Instance: e.Instance, LastSeenAt: now.Add(-e.Unseen)}), append(last, r)
		}
	}
	p.others.Store(&found)
	for i := range last {
		end := &unreported[i]
		if end.InLoop = p.inLoop(last[i].Coordinator, now); !end.InLoop {
			p.endProblems(&last[i], end.LastSeenAt)
		}
	}
	if len(unreported) > 0 && p.config.Ended != nil {
		p.config.Ended(unreported)
	}
}

// endProblems ends the problems of another coordinator, which has ended and cannot do it. Those that every coordinator
// finds may be in no record yet: the coordinator that has ended may have been the one to write them.
func (p *Peers) endProblems(last *Report, at time.Time) {
	for _, problem := range slices.Concat(last.Problems, last.Gone) {
		if problem.lasts() {
			problem.Until = at
		}
		if problem.Derived {
			problem.Derived, problem.Coordinators = false, []string{last.Instance}
		}
		p.tracker.note(problem)
	}
}

// own is the report of this coordinator.
func (p *Peers) own(now time.Time) Report {
	counts := p.config.Counts(now)
	return Report{
		Coordinator: p.config.Self(now),
		Refusals:    peerstats.Lately(p.config.Refusals(), RefusalMemory, now),
		Counts:      &counts,
		Problems:    p.ownProblems(),
		Gone:        p.ownGone(),
		Attending:   p.config.Attending(),
	}
}

// Leave tells the others that this coordinator is about to stop cleanly. After Break the others are to take the stop
// for an unclean end, so Leave tells nothing.
func (p *Peers) Leave(ctx context.Context, store Store) error {
	if p.broken.Load() {
		return nil
	}
	now := time.Now()
	last := p.own(now)
	last.Stopped = true
	text, err := last.Write(now)
	if err != nil {
		return err
	}
	p.tracker.stop(now)
	_, err = store.ShareReport(ctx, text, p.silence, false)
	return errors.Join(err, p.recordEnded(ctx, store, now))
}

// Coordinators lists this coordinator and the others, as Arrange arranges them.
func (p *Peers) Coordinators(now time.Time) []Coordinator {
	all := []Coordinator{p.config.Self(now)}
	for _, r := range p.others.Load().reports {
		all = append(all, r.Coordinator)
	}
	Arrange(all)
	return all
}

// Sums are the sums of the counts of all coordinators. While the store is away, the counts of the others become too
// old.
func (p *Peers) Sums(now time.Time) peerstats.Sums {
	counts := []peerstats.Report{p.config.Counts(now)}
	for _, r := range p.others.Load().reports {
		if r.Counts != nil && now.Sub(r.SeenAt) < p.silence {
			counts = append(counts, *r.Counts)
		}
	}
	return peerstats.Sum(counts...)
}

// Attending are the producers with a stream at this coordinator or at another that runs, sorted.
func (p *Peers) Attending(now time.Time) []string {
	all := p.config.Attending()
	for _, r := range p.others.Load().reports {
		if now.Sub(r.SeenAt) < p.silence {
			all = append(all, r.Attending...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Refusals are the recent refusals of all coordinators, the latest first.
func (p *Peers) Refusals(now time.Time) []peerstats.Refusal {
	all := p.config.Refusals()
	for _, r := range p.others.Load().reports {
		all = append(all, r.Refusals...)
	}
	return peerstats.Lately(peerstats.MergeRefusals(all), RefusalMemory, now)
}

// Ends are the unclean ends within a time before now, the latest first.
func (p *Peers) Ends(within time.Duration, now time.Time) []End {
	recent := slices.Clone(p.others.Load().ends)
	return slices.DeleteFunc(recent, func(e End) bool { return now.Sub(e.LastSeenAt) >= within })
}
