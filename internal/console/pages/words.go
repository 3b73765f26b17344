package pages

import (
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/escape"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// words are the functions of the templates.
var words = template.FuncMap{
	"count": count, "int64": func(n int) int64 { return int64(n) }, "ago": operate.Ago, "span": operate.Duration,
	"stamp": stamp,
	"plain": escape.Lines, "state": stateName, "rate": rate,
	"address": address, "letteraddress": letterAddress, "exchange": exchangeName, "time": timeOf,
	"tick": tick, "minute": minute, "flip": func(percent float64) float64 { return 100 - percent },
	"verdict": verdict, "meaning": func(k adminv1.EventKind) string { return halfmsg.Meaning(operate.Word(k)) },
	"tone": tone, "iso": iso, "attempts": attempts,
	"grouping":       func(groups *groupsData, now time.Time, acts bool) grouping { return grouping{groups, now, acts} },
	"lettergrouping": func(groups *letterGroups, now time.Time) letterGrouping { return letterGrouping{groups, now} },
	"word":           operate.Word, "archived": archivedLink,
	"at":     func(t, now time.Time) moment { return moment{t, now} },
	"next":   next,
	"reason": halfmsg.Reason,
}

// tone is the style-sheet class of an event.
func tone(kind adminv1.EventKind) string {
	switch operate.Word(kind) {
	case halfmsg.EventGivenUp.String(), halfmsg.EventTimedOut.String(), halfmsg.EventRefused.String(),
		halfmsg.EventExhausted.String():
		return "bad"
	case halfmsg.EventUnknown.String(), halfmsg.EventUnreachable.String(), halfmsg.EventUnsure.String(),
		halfmsg.EventReleased.String(), halfmsg.EventMarkerKept.String(), halfmsg.TakenOver:
		return "warn"
	}
	return "good"
}

// count writes a number with its thousands apart.
func count(n int64) string {
	sign, digits := apart(strconv.FormatInt(n, 10))
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

func apart(number string) (sign, digits string) {
	digits = strings.TrimPrefix(number, "-")
	return number[:len(number)-len(digits)], digits
}

// stamp writes a time in full.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC")
}

// moment is a time and the time now.
type moment struct{ Time, Now time.Time }

// iso writes a time for programs, such as the script of the pages.
func iso(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// attempts counts the attempts of the loop that works on a message, or did so last.
func attempts(r *adminv1.MessageRecord) int32 {
	switch stateOf(r.GetState()) {
	case halfmsg.Pending, halfmsg.Abandoned:
		return r.GetConfirmAttempts()
	case halfmsg.Acknowledged:
		return r.GetDeleteAttempts()
	}
	return r.GetPublishAttempts()
}

// rate writes messages a second.
func rate(v float64) string {
	switch {
	case v > 0 && v < 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case math.IsNaN(v) || math.Abs(v) >= math.MaxInt64/2: // no such rate; the conversion has no defined result
		return "?"
	}
	return count(int64(v + .5))
}

// tick writes a round time on the axis of a chart.
func tick(t time.Time, within time.Duration) string {
	if within > 48*time.Hour {
		return t.Format("Mon 2")
	}
	return t.Format("15:04")
}

// minute writes a time of a chart.
func minute(t time.Time) string { return t.Format("2006-01-02 15:04") }

// verdict is the name of a verdict of the API.
func verdict(v halfmsg.Verdict) string {
	return strings.TrimPrefix(msghandlerv1.Verdict(v).String(), "VERDICT_")
}

// stateName is the name of a state of the API.
func stateName(s msghandlerv1.State) string { return stateOf(s).String() }

func stateOf(s msghandlerv1.State) halfmsg.State {
	if s < 0 || int(s) >= len(halfmsg.States()) {
		return halfmsg.None
	}
	return halfmsg.State(s) //nolint:gosec // in range, see above
}
