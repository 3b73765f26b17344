// Package doctor examines everything a coordinator needs and reports problems: what, why, and what to do.
//
// The doctor changes nothing: Redis is only read, the test message can reach no queue, and producers are asked about an
// id that cannot exist.
package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/expiry"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// Severity says how bad a finding is.
type Severity uint8

// The severities, from good to bad.
const (
	// OK is a healthy part.
	OK Severity = iota
	// Note is something to know, and perhaps intended.
	Note
	// Warning weakens a promise in some faults, or waits for an operator to act.
	Warning
	// Trouble means: messages are not accepted, not delivered, or may be lost without any fault.
	Trouble
)

var severityNames = [...]string{"ok", "note", "warning", "trouble"}

// String is ok, note, warning or trouble.
func (s Severity) String() string { return severityNames[s] }

// Finding is a result of the examination.
type Finding struct {
	// Area is the examined part, such as redis.
	Area string
	// Name identifies the kind of finding, such as redis-evicts, and is stable, for scripts and runbooks. A healthy part
	// has no name.
	Name     string
	Severity Severity
	// The observation, its consequence and the action. A healthy part has only the observation.
	What, Why, Remedy string
	// Subject is the part that a finding of a coordinator is about; empty: that of Area, or none.
	Subject string
	// Follows is the name of the finding behind this one, which is its consequence and ends with it; empty: none.
	Follows string
	// Check is the check of Verify that made the finding, such as final, and stays the same; empty for Examine.
	Check string
	// Took is the duration of that check.
	Took time.Duration
}

// Examination says which parts to examine.
type Examination struct {
	Settings config.Config
	// Coordinator is a running coordinator.
	Coordinator Coordinator
	// Producers are callback targets by producer, beside the targets of the settings.
	Producers map[string]string
	// Defaults are the Sections without any given key. Troubles of these sections are warnings only.
	Defaults []string
	// DeadLetterQueues are examined beside the queues of the settings.
	DeadLetterQueues []string
	// Descriptors is the limit of open files for a coordinator started here; 0 means unknown.
	Descriptors int
	// Timeout bounds each part. Default 10s.
	Timeout time.Duration
	// Known are messages of the producer that Verify asks about beside ids that cannot exist.
	Known Known
	// DatabaseAway says that the producer's database is away on purpose: Verify then asks only how the producer answers
	// without its database.
	DatabaseAway bool

	seen *coordinatorSeen
	// certificates are those of the settings, and those of the servers that the parts have dialled; nil: they are not
	// examined.
	certificates *expiry.Book
}

// Coordinator says how to reach a coordinator.
type Coordinator struct {
	Address string
	// Credentials are for the connection. Default: no encryption.
	Credentials credentials.TransportCredentials
	// Token is shown on each call; nil: no token.
	Token credentials.PerRPCCredentials
	// Hint is what a coordinator that does not answer may miss, as the end of a sentence; may be empty.
	Hint string
}

// coordinatorSeen is what the doctor has heard of the coordinator.
type coordinatorSeen struct {
	// examined is closed when the coordinator has answered or not. The pending messages are asked for then, so that two
	// questions at once do not change what the doctor finds.
	examined chan struct{}
	// stats are set when examined is closed; nil without an answer.
	stats *adminv1.GetStatsResponse
}

// part examines a part.
type part func(ctx context.Context, e Examination) []Finding

// Examine examines all parts in parallel and returns the findings in the order in which a coordinator needs the parts.
// Each part has at least a finding OK.
func Examine(ctx context.Context, e Examination) []Finding {
	e.Timeout = cmp.Or(e.Timeout, 10*time.Second)
	e.seen = &coordinatorSeen{examined: make(chan struct{})}
	e.certificates = new(expiry.Book)
	parts := []part{
		examineSettings, examineRedis, examineBroker, examineBrokers, examineDeadLetters, examineOutboxes,
		examineCoordinator, examineProducers,
	}
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
	all := append(slices.Concat(found...), e.examineCertificates(time.Now())...)
	return folded(e.ofDefaults(Sections(), withoutRepeats(all)))
}

// report collects the findings of an area.
type report struct {
	area string
	all  []Finding
	// handshakes notes the handshakes with the server of the area; nil: nothing does.
	handshakes func(server string, state tls.ConnectionState, err error)
}

func (r *report) add(severity Severity, name, what, why, remedy string) {
	r.all = append(r.all, Finding{
		Area: r.area, Name: name, Severity: severity, What: what, Why: why, Remedy: remedy,
	})
}

func (r *report) note(name, what, why, remedy string) {
	r.add(Note, name, what, why, remedy)
}

func (r *report) warn(name, what, why, remedy string) {
	r.add(Warning, name, what, why, remedy)
}

func (r *report) trouble(name, what, why, remedy string) {
	r.add(Trouble, name, what, why, remedy)
}

// because adds a trouble with its cause.
func (r *report) because(of cause.Cause, what string) {
	r.trouble(of.Name, what, of.Why, of.Remedy)
}

// orOK returns the findings. If there are only notes, a finding OK precedes them.
func (r *report) orOK(what string) []Finding {
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
