package operate

import (
	"fmt"
	"time"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// Lasting says for how long a problem lasts or lasted, and how its figure has changed since its start: "5 min 3 s,
// growing from 3". Empty: its start is unknown, or the finding is an event.
func Lasting(f *adminv1.Finding, now time.Time) string {
	start, end := f.GetStartTime(), f.GetEndTime()
	switch {
	case start == nil:
		return ""
	case end != nil:
		now = end.AsTime()
	}
	lasted := now.Sub(start.AsTime()).Round(time.Second)
	if end != nil && lasted == 0 {
		return ""
	}
	text := Duration(max(0, lasted))
	if growth := Growth(f); growth != "" {
		text += ", " + growth
	}
	return text
}

// Growth says how the figure of a problem has changed since its start; empty for a problem without a figure.
func Growth(f *adminv1.Finding) string {
	switch first, now := f.GetStartCount(), f.GetCount(); {
	case first == 0 && now == 0:
		return ""
	case now > first:
		return fmt.Sprintf("growing from %d", first)
	case now < first:
		return fmt.Sprintf("shrinking from %d", first)
	default:
		return fmt.Sprintf("steady at %d", now)
	}
}

// Remedy is what to do about a problem; a consequence of another needs nothing of its own.
func Remedy(f *adminv1.Finding) string {
	if f.GetFollows() == "" {
		return f.GetRemedy()
	}
	return "nothing; it follows " + f.GetFollows() + ", and ends with it"
}
