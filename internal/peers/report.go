package peers

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/peerstats"
)

const (
	// maxRefusals and maxCause bound the refusals of a report, and the bytes of the cause of each.
	maxRefusals, maxCause = 20, 300
	// maxAttending bounds the producers of a report that attend.
	maxAttending = 200
)

// Report is what a coordinator tells the others of itself.
type Report struct {
	Coordinator
	// Refusals are the calls that the coordinator refused lately, the latest first.
	Refusals []peerstats.Refusal
	// Problems are those of the coordinator, the worst first.
	Problems []Problem
	// Gone are the problems of the coordinator that have ended, and that the record does not have yet.
	Gone []Problem
	// Counts are the coordinator's producers and exchanges; nil once they are too old.
	Counts *peerstats.Report
	// Attending are the producers with a stream at the coordinator.
	Attending []string
}

// Text is a report as a store keeps it. Both parts are lines without an end.
type Text struct {
	// Lasting outlives its coordinator, which may be missing. Passing holds for some intervals only.
	Lasting, Passing string
	// Stopped says that the coordinator is about to stop cleanly.
	Stopped bool
}

// lasting and passing are the parts of a report. Clocks differ, so the reader moves all times by the difference.
type (
	lasting struct {
		// Now is the time of the report by the clock of its writer.
		Now         time.Time           `json:"now"`
		Coordinator Coordinator         `json:"coordinator"`
		Refusals    []peerstats.Refusal `json:"refusals,omitempty"`
		Problems    []Problem           `json:"problems,omitempty"`
		Gone        []Problem           `json:"gone,omitempty"`
	}
	passing struct {
		// Configuration is null where it is too large to share, and empty where all keys have their defaults.
		Configuration map[string]string `json:"configuration"`
		Counts        *peerstats.Report `json:"counts"`
		Attending     []string          `json:"attending,omitempty"`
	}
)

// Write writes the report for others.
func (r Report) Write(now time.Time) (Text, error) {
	refusals := make([]peerstats.Refusal, min(len(r.Refusals), maxRefusals))
	for i := range refusals {
		refusals[i] = r.Refusals[i]
		cause := refusals[i].Cause
		refusals[i].Cause = strings.ToValidUTF8(cause[:min(len(cause), maxCause)], "")
	}
	lasts, err := json.Marshal(lasting{now, r.Coordinator, refusals, boundedAll(r.Problems), boundedAll(r.Gone)})
	text := Text{Lasting: string(lasts), Stopped: r.Stopped}
	if r.Stopped || err != nil {
		return text, err
	}
	passes, err := json.Marshal(passing{r.Config.Values, r.Counts, r.Attending[:min(len(r.Attending), maxAttending)]})
	text.Passing = string(passes)
	return text, err
}

// boundedAll are the first problems for a report, which names its writer.
func boundedAll(all []Problem) []Problem {
	some := slices.Clone(all[:min(len(all), maxProblems)])
	for i := range some {
		some[i] = some[i].bounded()
		some[i].Coordinators = nil
	}
	return some
}

var errNoTime = errors.New("the report has no time")

// read reads the report of an entry. An error leaves everything of the report unknown.
func (e *Entry) read(now time.Time) (Report, error) {
	var lasts lasting
	if err := json.Unmarshal([]byte(e.Lasting), &lasts); err != nil {
		return Report{}, err
	}
	if lasts.Now.IsZero() {
		return Report{}, errNoTime
	}
	r := Report{Coordinator: lasts.Coordinator, Refusals: lasts.Refusals, Problems: lasts.Problems, Gone: lasts.Gone}
	r.Instance, r.SeenAt, r.Stopped, r.Ended = e.Instance, now.Add(-e.Ago), e.Stopped, e.Ended
	by := r.SeenAt.Sub(lasts.Now)
	r.StartedAt = r.StartedAt.Add(by)
	for i := range r.Refusals {
		refusal := &r.Refusals[i]
		refusal.FirstAt, refusal.LastAt = refusal.FirstAt.Add(by), refusal.LastAt.Add(by)
	}
	for i := range r.Problems {
		r.Problems[i].readFrom(r.Instance, by)
	}
	for i := range r.Gone {
		r.Gone[i].readFrom(r.Instance, by)
	}
	if e.Passing == "" {
		return r, nil
	}
	var passes passing
	if err := json.Unmarshal([]byte(e.Passing), &passes); err != nil {
		return Report{}, err
	}
	r.Config.Values, r.Counts, r.Attending = passes.Configuration, passes.Counts, passes.Attending
	if r.Counts != nil {
		r.Counts.Shift(by)
	}
	return r, nil
}
