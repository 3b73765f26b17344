package cli

import (
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// coordinatorFindings are the findings of a coordinator, for programs.
func coordinatorFindings(all []*adminv1.Finding) []finding {
	rows := make([]finding, len(all))
	for i, f := range all {
		rows[i] = finding{
			Name: f.GetName(), Severity: severityName(f.GetSeverity()),
			What: f.GetWhat(), Why: f.GetWhy(), Remedy: f.GetRemedy(),
			StartedAt: moment(f.GetStartTime()), EndedAt: moment(f.GetEndTime()), Coordinators: f.GetCoordinators(),
			Count: f.GetCount(), StartCount: f.GetStartCount(),
		}
	}
	return rows
}

// findingRows is the same for people, with the remedy below each: nothing where there is nothing. The consequences of a
// finding stand below it, as in the doctor.
func findingRows(all []*adminv1.Finding, now time.Time) (rows [][]string) {
	roots := cause.Roots(len(all), func(f, of int) bool { return cause.Follows(all[f].GetName(), all[of].GetName()) })
	add := func(f *adminv1.Finding, remedy string) {
		what := f.GetWhat()
		if lasting := operate.Lasting(f, now); lasting != "" {
			what += " (for " + lasting + ")"
		}
		rows = append(rows, []string{strings.ToUpper(severityName(f.GetSeverity())), f.GetName(), what})
		if remedy != "" {
			rows = append(rows, []string{"", "do:", remedy})
		}
	}
	for i, root := range all {
		if roots[i] != i {
			continue
		}
		add(root, root.GetRemedy())
		for j, f := range all {
			if j != i && roots[j] == i {
				add(f, "nothing; it follows "+root.GetName()+", and ends with it")
			}
		}
	}
	return rows
}

// severityName is empty for an event, which is no problem.
func severityName(s adminv1.Severity) string { return operate.Word(s) }
