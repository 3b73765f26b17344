package doctor

import pb "github.com/msghandler/msghandler/proto/msghandler/v1"

// findings adds the coordinator's own findings: no count of messages shows refused producers, dead letters or killed
// neighbours. A coordinator of an earlier version has no findings.
func (r *report) findings(all []*pb.Finding) {
	for _, f := range all {
		tell := r.warn
		if f.GetSeverity() == pb.Severity_SEVERITY_TROUBLE {
			tell = r.trouble
		}
		tell(f.GetName(), f.GetWhat(), f.GetWhy(), f.GetRemedy())
	}
}
