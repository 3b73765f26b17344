package peers

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

const (
	// maxProblems bounds the problems of a report.
	maxProblems = 10
	// maxWhat, maxWhy and maxRemedy bound the texts of a problem in a report and in the record, in bytes.
	maxWhat, maxWhy, maxRemedy = 300, 200, 400
	// MaxEnded bounds the number of ended problems in the record.
	MaxEnded = 1000
	// EndedMemory bounds the age of an ended problem in the record.
	EndedMemory = 7 * 24 * time.Hour
	// sameWithin is the longest pause within a problem: while a coordinator restarts, a problem goes on.
	sameWithin = time.Minute
)

// Severity says how bad a problem is, by the numbers of the API.
type Severity int

// The severities of problems. An Event is no problem, such as the start of a coordinator.
const (
	Event Severity = iota
	Warning
	Trouble
)

// Problem is a failing check or a finding, at one coordinator or at several. Name and Remedy tell causes apart.
type Problem struct {
	// Name is the finding that docs/reference/findings.md explains.
	Name     string   `json:"name"`
	Severity Severity `json:"severity,omitempty"`
	// What an operator sees, Why the problem matters, and the Remedy.
	What   string `json:"what"`
	Why    string `json:"why,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Since is when the problem began, and Until when the problem ended, or when a repeated event happened last.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// Count is the figure of the problem, such as the number of dead letters, and First the figure at the beginning.
	// 0: the problem has no figure.
	Count int64 `json:"count,omitempty"`
	First int64 `json:"first,omitempty"`
	// Subject is the part that the problem is about, as in the metric msghandler_problem: a check, a producer or a queue.
	// Empty: no part, or several.
	Subject string `json:"subject,omitempty"`
	// Coordinators are the instances with the problem.
	Coordinators []string `json:"coordinators,omitempty"`
	// Derived says that every coordinator finds the problem without a report.
	Derived bool `json:"derived,omitzero"`
}

// causeKey tells causes apart.
type causeKey struct{ name, remedy string }

func (p *Problem) key() causeKey { return causeKey{p.Name, p.Remedy} }

// lasts says whether the problem has not ended.
func (p *Problem) lasts() bool { return p.Until.IsZero() }

// bounded has texts short enough for a report.
func (p Problem) bounded() Problem {
	cut := func(text string, most int) string {
		return strings.ToValidUTF8(text[:min(len(text), most)], "")
	}
	p.What, p.Why, p.Remedy = cut(p.What, maxWhat), cut(p.Why, maxWhy), cut(p.Remedy, maxRemedy)
	return p
}

// readFrom names the coordinator that has reported the problem, and moves the times, which are by its clock.
func (p *Problem) readFrom(instance string, by time.Duration) {
	p.Since = p.Since.Add(by)
	if !p.lasts() {
		p.Until = p.Until.Add(by)
	}
	if !p.Derived {
		p.Coordinators = []string{instance}
	}
}

// join adds the same cause at another coordinator, or from an earlier entry of the record.
func (p *Problem) join(other Problem) {
	if other.Since.Before(p.Since) {
		p.Since, p.First = other.Since, other.First
	}
	if !p.lasts() && (other.lasts() || other.Until.After(p.Until)) {
		p.Until, p.Count = other.Until, other.Count
	}
	p.joinSubject(other)
	p.Severity = max(p.Severity, other.Severity)
	for _, instance := range other.Coordinators {
		if !slices.Contains(p.Coordinators, instance) {
			p.Coordinators = append(p.Coordinators, instance)
		}
	}
}

// joinSubject forgets the subject of a problem that has several.
func (p *Problem) joinSubject(other Problem) {
	if p.Subject != other.Subject {
		p.Subject = ""
	}
}

// worstFirst orders problems by severity.
func worstFirst(a, b Problem) int { return cmp.Compare(b.Severity, a.Severity) }

// Recorded is an entry of the record of ended problems.
type Recorded struct {
	// At is when the entry was written, by the store's clock.
	At   time.Time
	Text string
}

// ended is an ended problem in the record. Clocks differ, so an entry has ages.
type ended struct {
	Problem
	// AgoMS is how long before the entry the problem ended, and LastedMS how long the problem lasted, in milliseconds.
	AgoMS    int64 `json:"ago_ms,omitempty"`
	LastedMS int64 `json:"lasted_ms,omitempty"`
}

// record is the text of an ended problem for the record.
func (p Problem) record(now time.Time) (string, error) {
	e := ended{
		Problem: p.bounded(), AgoMS: now.Sub(p.Until).Milliseconds(), LastedMS: p.Until.Sub(p.Since).Milliseconds(),
	}
	e.Since, e.Until = time.Time{}, time.Time{}
	text, err := json.Marshal(e)
	return string(text), err
}

// read is the problem of an entry.
func (r Recorded) read() (Problem, error) {
	var e ended
	if err := json.Unmarshal([]byte(r.Text), &e); err != nil {
		return Problem{}, err
	}
	e.Until = r.At.Add(-time.Duration(e.AgoMS) * time.Millisecond)
	e.Since = e.Until.Add(-time.Duration(e.LastedMS) * time.Millisecond)
	return e.Problem, nil
}

// Timeline joins problems with the same cause that follow each other at once or last at the same time: of several
// coordinators, and from before and after a restart. The latest problem comes first. Events stay as they are.
func Timeline(all []Problem) []Problem {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Problem) int { return a.Since.Compare(b.Since) })
	last := map[causeKey]int{}
	var line []Problem
	for _, p := range all {
		at, known := last[p.key()]
		if known && p.Severity != Event {
			if same := &line[at]; same.lasts() || p.Since.Sub(same.Until) <= sameWithin {
				same.join(p)
				continue
			}
		}
		p.Coordinators = slices.Clone(p.Coordinators)
		last[p.key()] = len(line)
		line = append(line, p)
	}
	slices.Reverse(line)
	return line
}
