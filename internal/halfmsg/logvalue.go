package halfmsg

import "log/slog"

// The values are texts in JSON log lines too, where slog would write objects and numbers: a log store takes a single
// type for each attribute.

// LogValue is the state's name, such as pending.
func (s State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// LogValue is the event's name, such as committed.
func (e Event) LogValue() slog.Value { return slog.StringValue(e.String()) }
