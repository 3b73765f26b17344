package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
)

// Level is the level of the lines about records. It is above all levels that log.level can name, so that no
// configuration silences them.
const Level = slog.LevelError + 4

// LevelName is for slog.HandlerOptions.ReplaceAttr: it gives Level its name.
func LevelName(groups []string, a slog.Attr) slog.Attr {
	if level, is := a.Value.Any().(slog.Level); is && len(groups) == 0 && a.Key == slog.LevelKey && level == Level {
		a.Value = slog.StringValue("AUDIT")
	}
	return a
}

// namesPerLine is how many names, and how many destinations, a log line holds.
const namesPerLine = 100

// linesByResult are the log lines, by the result of a record.
var linesByResult = map[Result]string{
	Begun: "audit: change began; its outcome is a line of its own; without one the coordinator was killed: look what " +
		"was changed",
	Done:    "audit: change made",
	Refused: "audit: call refused; nothing was done; look who the caller is, or allow the call in the configuration",
	Failed:  "audit: change failed, or its outcome is unknown; look at the cause",
}

// writeLine writes a record to the log. Each message is named: nothing else remains of a discarded message.
func writeLine(ctx context.Context, logger *slog.Logger, r Record) {
	lines, part := max(len(r.Names), len(r.Destinations), 1), r
	for from := 0; from < lines; from += namesPerLine {
		part.Names, part.Destinations = lineOf(r.Names, from), lineOf(r.Destinations, from)
		if len(r.Names) > namesPerLine {
			part.Count = int64(len(part.Names))
		}
		logger.LogAttrs(ctx, Level, linesByResult[r.Result], attributes(part)...)
	}
}

// lineOf are the texts of a line.
func lineOf(texts []string, from int) []string {
	return texts[min(from, len(texts)):min(from+namesPerLine, len(texts))]
}

// attributes are the parts of a record that are set.
func attributes(r Record) []slog.Attr {
	all := []slog.Attr{
		slog.String("action", string(r.Action)), slog.String("result", string(r.Result)), slog.String("by", r.By),
		slog.String("identity", string(r.Kind)), slog.String("from", r.From), slog.String("via", string(r.Via)),
		slog.String("refusal", string(r.Refusal)), slog.String("producer", r.Producer), slog.String("filter", r.Filter),
		slog.String("reason", r.Reason), slog.String("cause", r.Cause),
	}
	set := slices.DeleteFunc(all, func(a slog.Attr) bool { return a.Value.String() == "" })
	if r.Count > 0 {
		set = append(set, slog.Int64("count", r.Count))
	}
	if r.Count > 1 && !r.Until.IsZero() {
		set = append(set, slog.Int64("within_ms", r.Until.Sub(r.Time).Milliseconds()))
	}
	if len(r.Names) > 0 {
		set = append(set, slog.Any("names", r.Names))
	}
	if len(r.Destinations) > 0 {
		set = append(set, slog.Any("destinations", r.Destinations))
	}
	return set
}

var (
	errQueueFull = errors.New("too many records wait for Redis, or the coordinator is stopping")
	errNoStore   = errors.New("no Redis was reached yet")
)

// warn logs that Redis takes no records now.
func (t *Trail) warn(err error) {
	if suppressed, due := t.logged.Due("append"); due {
		t.config.Logger.Warn("audit records cannot be stored; they wait, and the log has them; look after Redis, and "+
			"allow its user the stream commands on PREFIX:audit:*", "cause", err, "not_logged_before", suppressed)
	}
}

// drop counts records that Redis will not have.
func (t *Trail) drop(records int, cause error) {
	t.config.Metrics.AuditDropped(records)
	if suppressed, due := t.logged.Due("drop"); due {
		t.config.Logger.Error("audit records dropped; only the log has them; keep the log, and look after Redis",
			"records", records, "cause", cause, "not_logged_before", suppressed)
	}
}
