// Package doctor looks at everything a coordinator needs, and says what is wrong, why it matters and what to do.
//
// It changes nothing: Redis is only read, the one message that it publishes can reach no queue, and producers are asked
// about an id that cannot exist.
package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/config"
)

// Severity says how bad a finding is.
type Severity uint8

// The severities, from good to bad.
const (
	// OK is a part that was looked at and is well.
	OK Severity = iota
	// Note is something to know that may be well.
	Note
	// Warning weakens a promise in some faults, or waits for somebody to act.
	Warning
	// Trouble means that messages are not taken, not delivered, or can be lost without any fault.
	Trouble
)

var severityNames = [...]string{"ok", "note", "warning", "trouble"}

// String is ok, note, warning or trouble.
func (s Severity) String() string { return severityNames[s] }

// Finding is one thing that the doctor saw.
type Finding struct {
	// Area is the part that was looked at, such as redis.
	Area string
	// Name is the finding's own, such as redis-evicts; it stays the same, for scripts and runbooks. What is well has none.
	Name     string
	Severity Severity
	// What was seen, why it matters and what to do. Of something that is well there is only the first.
	What, Why, Remedy string
}

// Examination says what to look at.
type Examination struct {
	Settings config.Config
	// Server is the address of a running coordinator.
	Server string
	// Credentials are those that it is talked to with. Default: none, nothing is encrypted.
	Credentials credentials.TransportCredentials
	// Producers are callback targets by producer, beside those of the settings.
	Producers map[string]string
	// Defaults are those of Sections of which nobody has given a key. What is wrong with them is a warning only.
	Defaults []string
	// DeadLetterQueues are looked at beside those of the settings.
	DeadLetterQueues []string
	// Descriptors is how many files a coordinator that is started here may open; 0 is not known.
	Descriptors int
	// Timeout bounds each part. Default 10s.
	Timeout time.Duration
}

// part looks at one part of the whole.
type part func(ctx context.Context, e Examination) []Finding

// Examine looks at all parts at once and returns what it found, in the order in which they are needed; each part says at
// least that it is well.
func Examine(ctx context.Context, e Examination) []Finding {
	e.Timeout = cmp.Or(e.Timeout, 10*time.Second)
	parts := []part{examineSettings, examineRedis, examineBroker, examineDeadLetters, examineCoordinator, examineProducers}
	found := make([][]Finding, len(parts))
	var looking sync.WaitGroup
	for i, look := range parts {
		looking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, e.Timeout)
			defer cancel()
			found[i] = look(ctx, e)
		})
	}
	looking.Wait()
	return e.ofDefaults(Sections(), slices.Concat(found...))
}

// report collects what is found in one area.
type report struct {
	area string
	all  []Finding
}

func (r *report) note(name, what, why, remedy string) {
	r.all = append(r.all, Finding{r.area, name, Note, what, why, remedy})
}

func (r *report) warn(name, what, why, remedy string) {
	r.all = append(r.all, Finding{r.area, name, Warning, what, why, remedy})
}

func (r *report) trouble(name, what, why, remedy string) {
	r.all = append(r.all, Finding{r.area, name, Trouble, what, why, remedy})
}

// orWell returns what was found, and where that is nothing but notes, what is well before them.
func (r *report) orWell(what string) []Finding {
	if Worst(r.all) <= Note {
		return slices.Concat([]Finding{{Area: r.area, What: what}}, r.all)
	}
	return r.all
}

// Worst is the worst severity among findings.
func Worst(all []Finding) (worst Severity) {
	for _, f := range all {
		worst = max(worst, f.Severity)
	}
	return worst
}
