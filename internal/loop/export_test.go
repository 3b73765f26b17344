package loop

import "time"

// SetNow replaces the clock of a loop that has not started.
func (l *Loop) SetNow(now func() time.Time) { l.now = now }
