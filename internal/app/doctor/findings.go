package doctor

import pb "github.com/msghandler/msghandler/proto/msghandler/v1"

// findings passes on what the coordinator sees itself: no count of messages shows producers that are refused, dead
// letters, or neighbours that were killed. A coordinator of an earlier version tells of nothing.
func (r *report) findings(all []*pb.Finding) {
	for _, f := range all {
		tell := r.warn
		if f.GetSeverity() == pb.Severity_SEVERITY_TROUBLE {
			tell = r.trouble
		}
		tell(f.GetName(), f.GetWhat(), f.GetWhy(), f.GetRemedy())
	}
}
