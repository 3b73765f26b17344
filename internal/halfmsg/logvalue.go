package halfmsg

import "log/slog"

// The values that stand in log lines are texts in JSON as well, where slog would make objects and numbers of them: a log
// store takes one type for one attribute.

// LogValue is PRODUCER/ID.
func (n Name) LogValue() slog.Value { return slog.StringValue(n.String()) }

// LogValue is the state's name, such as pending.
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// LogValue is the event's name, such as committed.
func (e Event) LogValue() slog.Value { return slog.StringValue(e.String()) }
