package cli

import (
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// coordinatorFinding is a finding of a coordinator, for programs.
type coordinatorFinding struct {
	finding
	// Subject is the part that the finding is about.
	Subject string `json:"subject,omitempty"`
}

func coordinatorFindings(all []*adminv1.Finding) []coordinatorFinding {
	rows := make([]coordinatorFinding, len(all))
	for i, f := range all {
		rows[i] = coordinatorFinding{Subject: f.GetSubject(), finding: finding{
			Name: f.GetName(), Severity: severityName(f.GetSeverity()),
			What: f.GetWhat(), Why: f.GetWhy(), Remedy: f.GetRemedy(),
			StartedAt: moment(f.GetStartTime()), EndedAt: moment(f.GetEndTime()), Coordinators: f.GetCoordinators(),
			Count: f.GetCount(), StartCount: f.GetStartCount(), Follows: f.GetFollows(),
		}}
	}
	return rows
}

// findingRows is the same for people, with the remedy below each: nothing where there is nothing.
func findingRows(all []*adminv1.Finding, now time.Time) (rows [][]string) {
	for _, f := range all {
		what := f.GetWhat()
		if lasting := operate.Lasting(f, now); lasting != "" {
			what += " (for " + lasting + ")"
		}
		rows = append(rows, []string{strings.ToUpper(severityName(f.GetSeverity())), f.GetName(), what})
		if remedy := operate.Remedy(f); remedy != "" {
			rows = append(rows, []string{"", "do:", remedy})
		}
	}
	return rows
}

// severityName is empty for an event, which is no problem.
func severityName(s adminv1.Severity) string { return operate.Word(s) }
