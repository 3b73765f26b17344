package peers

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// ownProblems are the problems for the report: others find the derived ones themselves.
func (p *Peers) ownProblems() []Problem {
	return slices.DeleteFunc(p.tracker.present(), func(own Problem) bool { return own.Derived })
}

// ownGone are the ended problems for the report, the latest first. An event is in the record right after the report,
// and would be listed twice.
func (p *Peers) ownGone() []Problem {
	gone := slices.DeleteFunc(p.tracker.waiting(), isEvent)
	slices.SortFunc(gone, func(a, b Problem) int { return b.Until.Compare(a.Until) })
	return gone
}

func isEvent(one Problem) bool { return one.Severity == Event }

// reported are the problems in the reports of the others. A problem of this coordinator may have begun there.
func (p *Peers) reported() (all []sighting) {
	for _, r := range p.others.Load().reports {
		for _, problem := range r.Problems {
			all = append(all, sighting{problem, r.SeenAt})
		}
	}
	return all
}

// othersProblems are the problems of the other running coordinators.
func (p *Peers) othersProblems(now time.Time) (all []Problem) {
	for _, r := range p.othersNow(now) {
		all = append(all, r.Problems...)
	}
	return all
}

// othersNow are the reports of the other running coordinators. A report older than the silence says nothing of now.
func (p *Peers) othersNow(now time.Time) (all []Report) {
	for _, r := range p.others.Load().reports {
		if !r.Stopped && !r.Ended && now.Sub(r.SeenAt) < p.silence {
			all = append(all, r)
		}
	}
	return all
}

func (p *Peers) self() Coordinator { return p.config.Self(time.Now()) }

// Since is when the present problem of a name and a remedy began; zero where this coordinator has no such problem.
func (p *Peers) Since(name, remedy string) time.Time {
	return p.tracker.since(causeKey{name, remedy})
}

// Problems adds to the problems of this coordinator since when they last, and which other coordinators have them. The
// problems of others alone follow, each cause once. The worst come first.
func (p *Peers) Problems(own []Problem, now time.Time) []Problem {
	all := p.ownOnes(slices.Clone(own))
	for i := range all {
		p.tracker.date(&all[i], now)
	}
	return p.joinOthers(all, now)
}

// joinOthers adds the problems of the other coordinators to all own ones. A coordinator reports the sum of the
// figures of a cause, so the figures of others change no own figure.
func (p *Peers) joinOthers(all []Problem, now time.Time) []Problem {
	own := len(all)
	for _, other := range p.othersProblems(now) {
		known := false
		for i := range all {
			if same := &all[i]; same.key() == other.key() {
				first := same.First
				if same.join(other); i < own {
					same.First = first
				}
				known = true
			}
		}
		if !known {
			other.Coordinators = slices.Clone(other.Coordinators)
			all = append(all, other)
		}
	}
	slices.SortStableFunc(all, worstFirst)
	return all
}

// Note lets the record have an ended problem of this coordinator, or an event.
func (p *Peers) Note(ended Problem) { p.NoteOf(p.self().Instance, ended) }

// NoteOf is Note for another coordinator.
func (p *Peers) NoteOf(instance string, ended Problem) {
	ended.Coordinators = []string{instance}
	p.tracker.note(ended)
}

// ownOnes names this coordinator as the place of the problems, unless all coordinators find them.
func (p *Peers) ownOnes(all []Problem) []Problem {
	for i := range all {
		if all[i].Coordinators = nil; !all[i].Derived {
			all[i].Coordinators = []string{p.self().Instance}
		}
	}
	return all
}

// recordEnded writes the ended problems into the record. After an error the next exchange repeats the write. A full
// store takes reports and no record: the exchange has succeeded, and the record waits for room.
func (p *Peers) recordEnded(ctx context.Context, store Store, now time.Time) error {
	all := p.tracker.takeEnded()
	all = slices.DeleteFunc(all, func(one Problem) bool { return one.Derived && p.isRecordedByOther(one, now) })
	if slices.ContainsFunc(all, isEvent) && p.inLoop(p.self(), now) {
		all = slices.DeleteFunc(all, isEvent)
	}
	if len(all) == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, problem := range all {
		if len(problem.Coordinators) == 0 && !problem.Derived {
			problem.Coordinators = []string{p.self().Instance}
		}
		var err error
		if texts[i], err = problem.record(now); err != nil {
			return err
		}
	}
	err := store.RecordEnded(ctx, texts)
	if err != nil {
		p.tracker.note(all...)
	}
	if errors.Is(err, halfmsg.ErrFull) {
		return nil
	}
	return err
}

// isRecordedByOther says whether another coordinator records a problem that all find: the first of those that run since
// before the problem began. One that started later may not have seen the problem, and leaves the record to others.
func (p *Peers) isRecordedByOther(one Problem, now time.Time) bool {
	own := p.self().Instance
	return slices.ContainsFunc(p.Coordinators(now), func(c Coordinator) bool {
		return c.State == Running && c.Instance < own && !c.StartedAt.After(one.Since)
	})
}

// inLoop says whether a coordinator is one of many in a restart loop. The first one of each loopWithin is not: a loop
// that lasts must not push everything else out of the record of problems.
func (p *Peers) inLoop(c Coordinator, now time.Time) bool {
	all := p.Coordinators(now)
	return slices.Contains(SurveyOf(all, now).Looping, c.Place) && slices.ContainsFunc(all, func(first Coordinator) bool {
		return first.Place == c.Place && first.StartedAt.Before(c.StartedAt) &&
			first.StartedAt.Truncate(loopWithin).Equal(c.StartedAt.Truncate(loopWithin))
	})
}

// History lists the problems that lasted at or after since and began before until, the latest first: the present ones
// and the record. Errors are the store's.
func (p *Peers) History(ctx context.Context, store Store, since, until time.Time) ([]Problem, error) {
	now := time.Now()
	recorded, err := p.record.problems(ctx, store, now)
	if err != nil {
		return nil, err
	}
	all := append(p.joinOthers(p.tracker.present(), now), p.tracker.waiting()...)
	for _, r := range p.othersNow(now) {
		all = append(all, r.Gone...)
	}
	all = append(all, recorded...)
	return slices.DeleteFunc(Timeline(all), func(one Problem) bool {
		return !one.Since.Before(until) || !one.lasts() && one.Until.Before(since)
	}), nil
}
