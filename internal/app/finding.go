package app

import (
	"time"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	warning = adminv1.Severity_SEVERITY_WARNING
	trouble = adminv1.Severity_SEVERITY_TROUBLE
)

// findings collects problems for operators.
type findings []*adminv1.Finding

func (f *findings) add(severity adminv1.Severity, name, what, why, remedy string) {
	*f = append(*f, &adminv1.Finding{Name: name, Severity: severity, What: what, Why: why, Remedy: remedy})
}

// clock writes a time of day without the date: reported times are never old.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
