package app

import (
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	warning = peers.Warning
	trouble = peers.Trouble
)

// findings collects problems for operators.
type findings []peers.Problem

// add adds a problem. Its remedy must not change while the problem lasts: a problem with another remedy is another one.
// The caller may add to the result what else is known, until the next call.
func (f *findings) add(severity peers.Severity, name, what, why, remedy string) *peers.Problem {
	*f = append(*f, peers.Problem{Name: name, Severity: severity, What: what, Why: why, Remedy: remedy})
	return &(*f)[len(*f)-1]
}

// derived marks problems that each coordinator finds by itself.
func (f *findings) derived() findings {
	for i := range *f {
		(*f)[i].Derived = true
	}
	return *f
}

// clock writes a time of day without the date: reported times are never old.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// findingOf is a problem of the API.
func findingOf(p peers.Problem) *adminv1.Finding {
	return &adminv1.Finding{
		Name: p.Name, Severity: adminv1.Severity(p.Severity), //nolint:gosec // severities are few
		What: p.What, Why: p.Why, Remedy: p.Remedy, StartTime: server.Moment(p.Since), EndTime: server.Moment(p.Until),
		Coordinators: p.Coordinators, Count: p.Count, StartCount: p.First, Subject: p.Subject,
	}
}

// foldable is what says whether a problem follows another.
func foldable(p peers.Problem) cause.Problem {
	return cause.Problem{Name: p.Name, Subject: p.Subject, Since: p.Since, Until: p.Until}
}

// presentOf are problems that last, for the API, with the consequences of each behind it. Where several coordinators
// run, each says which of them has it.
func (a *App) presentOf(all []peers.Problem, now time.Time) []*adminv1.Finding {
	running := 0
	for _, c := range a.peers.Coordinators(now) {
		if c.State == peers.Running {
			running++
		}
	}
	var present []*adminv1.Finding
	add := func(p peers.Problem, follows string) {
		p.What = a.located(p, running)
		f := findingOf(p)
		f.Follows = follows
		present = append(present, f)
	}
	for i := range all {
		all[i].Until = time.Time{}
	}
	for _, f := range cause.Fold(all, foldable) {
		add(f.Root, "")
		for _, consequence := range f.Consequences {
			add(consequence, f.Root.Name)
		}
	}
	return present
}

// located is what was seen, and at which coordinators.
func (a *App) located(p peers.Problem, running int) string {
	switch n := len(p.Coordinators); {
	case p.Derived, n == 1 && running == 1 && p.Coordinators[0] == a.process.instance:
		return p.What
	case n == 1:
		return "coordinator " + p.Coordinators[0] + ": " + p.What
	case n >= running:
		return fmt.Sprintf("%s (on all %d coordinators)", p.What, n)
	default:
		return fmt.Sprintf("%s (on %d of %d coordinators: %s)", p.What, n, running, named(p.Coordinators))
	}
}

// pastProblems are the problems of a time, for the API.
func (a *App) pastProblems(
	ctx context.Context, store peers.Store, since, until time.Time,
) (all []*adminv1.Finding, err error) {
	problems, err := a.peers.History(ctx, store, since, until)
	folded := make([]cause.Problem, len(problems))
	for i, p := range problems {
		folded[i] = foldable(p)
	}
	for i, root := range cause.Roots(folded) {
		all = append(all, findingOf(problems[i]))
		if root != i {
			all[i].Follows = problems[root].Name
		}
	}
	return all, err
}
