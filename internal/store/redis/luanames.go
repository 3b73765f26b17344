package redis

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// luaName is a name that the scripts and this package share, with its value in Lua.
type luaName struct{ name, value string }

// luaNames are the shared names.
func luaNames(retention time.Duration) []luaName {
	var kept, final []string
	for code, state := range stateOf {
		switch {
		case state.Final():
			final = append(final, fmt.Sprintf("[%d]='%s'", code, state))
		case state != halfmsg.None:
			kept = append(kept, "'"+state.String()+"'")
		}
	}
	first, _ := halfmsg.Next(halfmsg.None, halfmsg.EventSend)
	committed, _ := halfmsg.Next(first, halfmsg.EventCommitted)
	acknowledged, _ := halfmsg.Next(committed, halfmsg.EventAckedMarked)
	text := func(name, value string) luaName { return luaName{name, "'" + value + "'"} }
	number := func(name string, value int64) luaName { return luaName{name, strconv.FormatInt(value, 10)} }
	receipt := max(1, retention.Milliseconds())
	return []luaName{
		{"KEPT", "{" + strings.Join(kept, ",") + "}"},
		{"FINAL", "{" + strings.Join(final, ",") + "}"},
		number("FIRST", int64(codeOf[first])),
		number("COMMITTED", int64(codeOf[committed])),
		number("ACKNOWLEDGED", int64(codeOf[acknowledged])),
		text("CREATED", createdSuffix),
		text("CELLS", cellsSuffix),
		text("PAGES", pagesKey),
		text("PAGE", pagePrefix),
		text("LEASES", leasesKey),
		text("VERDICTS", verdictsKey),
		text("RECORD", recordPrefix),
		text("NOTES", notesPrefix),
		text("PRODUCERS", producersKey),
		text("PULSE", pulseName),
		text("SUSPECT", suspectName),
		text("RUNS", runsName),
		text("REPORTED", reportedName),
		text("LAYOUTS", layoutsName),
		text("CHART", chartPrefix),
		text("PARKED", parkedName),
		number("PARKTIME", parkTime.Milliseconds()),
		number("MAXBODY", halfmsg.MaxBody),
		text("SUBMITTED", halfmsg.EventSubmit.String()),
		text("TRUSTED", halfmsg.EventSubmitTrusted.String()),
		text("TAKENOVER", halfmsg.TakenOver),
		text("NOBODY", nobody),
		number("MAXHAPPENINGS", halfmsg.MaxHappenings),
		number("MAXCAUSE", halfmsg.MaxHappeningCause),
		number("MAXDUE", maxDue.Milliseconds()),
		number("MAXLEASE", maxLease.Milliseconds()),
		number("RETENTION", receipt),
		text("RETENTION_TEXT", strconv.FormatInt(receipt, 10)),
		number("PULSERETENTION", pulseRetention.Milliseconds()),
		number("PAGESPAN", pageSpan.Milliseconds()),
		number("PAGELIFE", pageLife.Milliseconds()),
	}
}

// luaWord is a shared name in a script.
var luaWord = regexp.MustCompile(`\b[A-Z_]{2,}\b`)

// luaHead is the line before a script that defines the shared names that the script uses. Each takes time at each call.
func luaHead(source string, retention time.Duration) string {
	used := map[string]bool{}
	for _, word := range luaWord.FindAllString(source, -1) {
		used[word] = true
	}
	var names, values []string
	for _, n := range luaNames(retention) {
		if used[n.name] {
			names, values = append(names, n.name), append(values, n.value)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "local " + strings.Join(names, ", ") + " = " + strings.Join(values, ", ") + "\n"
}
