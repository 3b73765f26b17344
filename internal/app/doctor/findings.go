package doctor

import (
	"slices"
	"strings"
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
	}
}

// withoutRepeats drops findings of the coordinator that the doctor has made itself: both look at the memory of Redis.
// The certificates of the coordinator may be others than those that the doctor sees.
func withoutRepeats(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return f.Area == areaCoordinator && f.Name != "" && slices.ContainsFunc(all, func(own Finding) bool {
			return own.Area != areaCoordinator && own.Name == f.Name && (own.Area != areaCertificates || own.What == f.What)
		})
	})
}

// folded puts each finding that is a consequence of another behind that one.
func folded(found []Finding) (all []Finding) {
	follows := func(f, of int) bool { return found[f].follows(found[of]) }
	roots := cause.Roots(len(found), follows)
	for i, f := range found {
		if roots[i] != i {
			continue
		}
		all = append(all, f)
		for j, consequence := range found {
			if j != i && roots[j] == i {
				consequence.Follows = f.Name
				all = append(all, consequence)
			}
		}
	}
	return all
}

// follows says whether the finding is a consequence of another: of the same broker, where both are about a broker.
func (f Finding) follows(of Finding) bool {
	another := isBroker(f.Area) && isBroker(of.Area) && f.Area != of.Area
	return f.Severity > Note && of.Severity > Note && cause.Follows(f.Name, of.Name) && !another
}

func isBroker(area string) bool { return area == areaBroker || strings.HasPrefix(area, areaOfBroker) }
