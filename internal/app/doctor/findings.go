package doctor

import (
	"cmp"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// findings adds the coordinator's own findings: no count of messages shows refused producers, dead letters or killed
// neighbours.
func (r *report) findings(all []*adminv1.Finding, now time.Time) {
	for _, f := range all {
		tell := r.warn
		if f.GetSeverity() == adminv1.Severity_SEVERITY_TROUBLE {
			tell = r.trouble
		}
		what := f.GetWhat()
		if lasting := operate.Lasting(f, now); lasting != "" {
			what += " (for " + lasting + ")"
		}
		tell(f.GetName(), what, f.GetWhy(), f.GetRemedy())
		r.all[len(r.all)-1].Subject = f.GetSubject()
	}
}

// withoutRepeats drops findings of the coordinator that the doctor has made itself: both look at the memory of Redis.
// The certificates and the brokers of the coordinator may be others than those that the doctor sees.
func withoutRepeats(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return f.Area == areaCoordinator && f.Name != "" && slices.ContainsFunc(all, func(own Finding) bool {
			same := own.Area != areaCertificates || own.What == f.What
			return own.Area != areaCoordinator && own.Name == f.Name && same && !own.problem().OtherBroker(f.problem())
		})
	})
}

// folded puts each finding that is a consequence of another behind that one.
func folded(found []Finding) (all []Finding) {
	for _, f := range cause.Fold(found, Finding.problem) {
		all = append(all, f.Root)
		for _, consequence := range f.Consequences {
			consequence.Follows = f.Root.Name
			all = append(all, consequence)
		}
	}
	return all
}

// problem is what says whether the finding follows another. Notes follow nothing, and nothing follows them.
func (f Finding) problem() cause.Problem {
	if f.Severity <= Note {
		return cause.Problem{}
	}
	return cause.Problem{Name: f.Name, Subject: cmp.Or(f.Subject, f.Area)}
}
