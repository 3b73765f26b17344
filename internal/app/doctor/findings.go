package doctor

import (
	"slices"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// findings adds the coordinator's own findings: no count of messages shows refused producers, dead letters or killed
// neighbours.
func (r *report) findings(all []*adminv1.Finding) {
	for _, f := range all {
		tell := r.warn
		if f.GetSeverity() == adminv1.Severity_SEVERITY_TROUBLE {
			tell = r.trouble
		}
		tell(f.GetName(), f.GetWhat(), f.GetWhy(), f.GetRemedy())
	}
}

// withoutRepeats drops findings of the coordinator that the doctor has made itself: both look at the memory of Redis.
func withoutRepeats(all []Finding) []Finding {
	return slices.DeleteFunc(slices.Clone(all), func(f Finding) bool {
		return f.Area == areaCoordinator && f.Name != "" && slices.ContainsFunc(all, func(own Finding) bool {
			return own.Area != areaCoordinator && own.Name == f.Name
		})
	})
}
