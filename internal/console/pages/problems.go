package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// problem is a problem on the overview: what is wrong in short, why that matters and what to do.
type problem struct {
	Bad  bool // otherwise a warning
	Text string
	// Link leads to the details; empty: there are none.
	Link string
	// Error is the whole error where Text has its cause alone.
	Error string
	// Also are the texts of further problems of the same cause, and of those that end with it.
	Also []string
	// Since is when the problem began; zero: unknown. Growth says how its figure has changed.
	Since  time.Time
	Growth string
	advice

	// subject is the check that the problem is about; empty: none, or unknown.
	subject string
	// began is when the problem began at the earliest; zero: unknown.
	began time.Time

	// many says what is wrong with several of the kind, one is the first of them, and alike how many there are beside it.
	many, one string
	alike     int
}

// The ages from which a pending message without a verdict, and a due sendable message, are a problem.
const (
	latePending  = 15 * time.Minute
	lateSendable = time.Minute
)

// find lists the problems, the worst first.
func (d *overviewData) find(uncounted error, undecided time.Duration, now time.Time) {
	d.findChecks()
	for _, f := range d.Findings {
		d.add(problem{
			Bad: f.GetSeverity() == adminv1.Severity_SEVERITY_TROUBLE, Text: f.GetWhat(), subject: f.GetSubject(),
			advice: ofFinding(f.GetName(), f.GetWhy(), f.GetRemedy()),
		})
	}
	if d.Refused > 0 {
		d.add(problem{Bad: true, advice: onRefused, Text: fmt.Sprintf("Calls are refused, %s in %s: Redis is full, a "+
			"producer is over its quota, or too many calls wait", count(d.Refused), operate.Duration(history.Interval))})
	}
	if uncounted != nil {
		of := ofCause(cause.Of(cause.Redis, uncounted))
		d.add(failing("The messages cannot be counted", uncounted.Error(), "#checks", of))
	}
	d.findPeers()
	for _, s := range d.States {
		if s.Count > 0 {
			d.findState(s, undecided, now)
		}
	}
	d.fold()
	slices.SortStableFunc(d.Problems, func(a, b problem) int {
		switch {
		case a.Bad == b.Bad:
			return 0
		case a.Bad:
			return -1
		}
		return 1
	})
}

// add adds a problem. One cause is one problem: what has the name and the remedy of an earlier problem joins it.
func (d *overviewData) add(p problem) {
	d.Bad = d.Bad || p.Bad
	for i := range d.Problems {
		first := &d.Problems[i]
		if first.Name == p.Name && first.Do == p.Do && p.Do != "" {
			first.Also, first.Bad = append(first.Also, p.Text), first.Bad || p.Bad
			if p.began.Before(first.began) {
				first.began = p.began
			}
			if p.many != "" && p.many == first.many {
				first.alike++
			}
			return
		}
	}
	d.Problems = append(d.Problems, p)
}

// fold lets each problem that is a consequence of another join that one, and counts those that are alike.
func (d *overviewData) fold() {
	var roots []problem
	for _, folded := range cause.Fold(d.Problems, problem.folded) {
		first := folded.Root
		for _, p := range folded.Consequences {
			first.Also = append(append(first.Also, p.Text), p.Also...)
			first.Bad = first.Bad || p.Bad
		}
		if first.alike > 0 {
			first.Text = count(int64(first.alike+1)) + " " + first.many + first.one
		}
		roots = append(roots, first)
	}
	d.Problems = roots
}

// folded is what says whether the problem follows another.
func (p problem) folded() cause.Problem {
	return cause.Problem{Name: p.Name, Subject: p.subject, Since: p.began}
}

// failing is a problem with an error, of which the cause is shown first.
func failing(what, fault, link string, a advice) problem {
	p := problem{Bad: true, Text: what, Link: link, advice: a}
	if fault == "" {
		return p
	}
	short := halfmsg.Reason(fault)
	p.Text += ": " + short
	if short != fault {
		p.Error = fault
	}
	return p
}

func (d *overviewData) findChecks() {
	for _, c := range d.Checks {
		if !c.OK {
			of := failing(c.Name, c.Error, "#checks", ofCause(*cmp.Or(c.Cause, &cause.Degraded)))
			of.subject = c.Name
			d.add(of)
		}
		if c.Note != "" {
			d.add(problem{Bad: true, Text: c.Name + ": " + c.Note, Link: "#checks", advice: onUnknownNote})
		}
	}
}

// fails says whether a check fails.
func (d *overviewData) fails(check string) bool {
	return slices.ContainsFunc(d.Checks, func(c Checked) bool { return c.Name == check && !c.OK })
}

// findPeers finds producers and exchanges that fail.
func (d *overviewData) findPeers() {
	for _, p := range d.Producers {
		if p.Down {
			of := failing("Producer "+p.Name+" cannot be reached", p.Failure, "#producers", ofCause(cause.OfCall(p.Failure)))
			of.began = p.AnsweredAt
			of.many = "producers cannot be reached, such as "
			of.one = p.Name + strings.TrimPrefix(of.Text, "Producer "+p.Name+" cannot be reached")
			d.add(of)
		}
	}
	for _, e := range d.Exchanges {
		of := cause.OfRefusal(e.Failure, e.Name, "")
		told := of.Name == cause.MessageUnsent.Name && d.fails(cause.BrokerSubject(e.Broker))
		if e.Down && !told {
			p := failing(e.described()+" does not take messages", e.Failure, "#exchanges", ofCause(of))
			p.subject = cause.BrokerSubject(e.Broker)
			d.add(p)
		}
	}
}

// findState finds messages that wait for an operator, or too long.
func (d *overviewData) findState(s stateLine, undecided time.Duration, now time.Time) {
	p := problem{Link: "/messages?" + url.Values{"state": {s.State.String()}}.Encode()}
	switch {
	case s.State == halfmsg.Dead:
		p.Bad, p.advice = true, onDead
		p.Text = count(s.Count) + " dead: refused by the broker at every try; an operator must decide"
	case s.State == halfmsg.Abandoned:
		p.advice = onAbandoned
		p.Text = count(s.Count) + " abandoned: no verdict up to the limit of attempts or time; an operator must decide"
	case s.State == halfmsg.Pending && undecided > latePending:
		p.advice, p.Text = onPendingOld, "The verdict of a pending message is overdue by "+operate.Duration(undecided)
		p.began = now.Add(-undecided)
	case s.State == halfmsg.Sendable && !s.FirstDue.IsZero() && now.Sub(s.FirstDue) > lateSendable:
		p.advice = onBacklog
		p.Text = "Publishing is overdue: the first message has been due for " + operate.Duration(now.Sub(s.FirstDue))
	default:
		return
	}
	d.add(p)
}
