package events

import (
	"fmt"
	"log/slog"
)

// Thresholds notes an event when a backlog reaches its threshold, and when the backlog has shrunk again. Thresholds is
// not safe for concurrent use.
type Thresholds struct {
	// Notifier gets the events, Logger a line for each. Both are required.
	Notifier *Notifier
	Logger   *slog.Logger

	over map[string]bool
}

// Compare compares a subject's backlog with its threshold.
func (t *Thresholds) Compare(subject string, waiting, threshold int) {
	if t.over == nil {
		t.over = map[string]bool{}
	}
	over := waiting >= threshold
	if over == t.over[subject] {
		return
	}
	t.over[subject] = over
	if over {
		t.Logger.Warn("a backlog is over its threshold", "backlog", subject, "waiting", waiting, "threshold", threshold)
		t.Notifier.Note(Backlog, subject, fmt.Sprintf("%d are waiting, and the threshold is %d", waiting, threshold))
		return
	}
	t.Logger.Info("a backlog is below its threshold again", "backlog", subject, "waiting", waiting, "threshold", threshold)
	t.Notifier.Note(BacklogOver, subject, fmt.Sprintf("%d are waiting", waiting))
}
