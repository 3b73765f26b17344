package cli

import (
	"strings"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// coordinatorFindings are the findings of a coordinator, for programs.
func coordinatorFindings(all []*adminv1.Finding) []finding {
	rows := make([]finding, len(all))
	for i, f := range all {
		rows[i] = finding{
			Name: f.GetName(), Severity: severityName(f.GetSeverity()),
			What: f.GetWhat(), Why: f.GetWhy(), Remedy: f.GetRemedy(),
		}
	}
	return rows
}

// findingRows is the same for people, with the remedy below each: nothing where there is nothing.
func findingRows(all []*adminv1.Finding) (rows [][]string) {
	for _, f := range all {
		rows = append(rows, []string{strings.ToUpper(severityName(f.GetSeverity())), f.GetName(), f.GetWhat()})
		if f.GetRemedy() != "" {
			rows = append(rows, []string{"", "do:", f.GetRemedy()})
		}
	}
	return rows
}

func severityName(s adminv1.Severity) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "SEVERITY_"))
}
