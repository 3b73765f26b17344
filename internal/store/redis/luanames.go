package redis

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// luaName is a name that the scripts and this package share, with its value in Lua.
type luaName struct{ name, value string }

// luaTimes are the times of the configuration that the scripts know.
type luaTimes struct{ retention, longestWait time.Duration }

// luaNames are the shared names.
func luaNames(times luaTimes, archive Archive) []luaName {
	receipt := max(1, times.retention.Milliseconds())
	names := append(stateNames(), []luaName{
		luaText("CREATED", createdSuffix),
		luaText("CELLS", cellsSuffix),
		luaText("PAGES", pagesKey),
		luaText("PAGE", pagePrefix),
		luaText("LEASES", leasesKey),
		luaText("VERDICTS", verdictsKey),
		luaText("KEYOF", keysKey),
		luaText("CHAIN", chainPrefix),
		luaText("AWAITED", awaitedKey),
		luaNumber("BEHIND", behind),
		luaText("POINTER", pointer),
		luaText("RECORD", recordPrefix),
		luaText("NOTES", notesPrefix),
		luaText("PRODUCERS", producersKey),
		luaText("PULSE", pulseName),
		luaText("SUSPECT", suspectName),
		luaText("JUMPED", jumpedField),
		luaText("CLOCK", clockField),
		luaText("REPORTS", coordinatorsName),
		luaText("CHART", chartPrefix),
		luaText("PARKED", parkedName),
		luaText("PARKEDFOR", parkedForName),
		luaNumber("PARKTIME", parkTime.Milliseconds()),
		luaNumber("MAXBODY", halfmsg.MaxBody),
		luaText("SUBMITTED", halfmsg.EventSubmit.String()),
		luaText("TRUSTED", halfmsg.EventSubmitTrusted.String()),
		luaText("REPLAYED", halfmsg.EventReplay.String()),
		luaText("TAKENOVER", halfmsg.TakenOver),
		luaText("UNNAMED", unnamed),
		luaNumber("MAXHAPPENINGS", halfmsg.MaxHappenings),
		luaNumber("MAXCAUSE", halfmsg.MaxHappeningCause),
		luaNumber("MAXCALL", maxCallItems),
		luaNumber("MAXDUE", maxDue.Milliseconds()),
		luaNumber("MAXLEASE", (maxLease + clockSlack).Milliseconds()),
		luaNumber("LONGEST", times.longestWait.Milliseconds()),
		luaNumber("CLOCKSLACK", clockSlack.Milliseconds()),
		luaNumber("RETENTION", receipt),
		luaText("RETENTION_TEXT", strconv.FormatInt(receipt, 10)),
		luaNumber("PULSERETENTION", pulseRetention.Milliseconds()),
		luaNumber("PAGESPAN", pageSpan.Milliseconds()),
		luaNumber("PAGELIFE", pageLife.Milliseconds()),
	}...)
	return append(names, archive.luaNames()...)
}

// stateNames are the names about the table of states.
func stateNames() []luaName {
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
	return []luaName{
		{"KEPT", "{" + strings.Join(kept, ",") + "}"},
		{"FINAL", "{" + strings.Join(final, ",") + "}"},
		luaNumber("FIRST", int64(codeOf[first])),
		luaNumber("COMMITTED", int64(codeOf[committed])),
		luaNumber("ACKNOWLEDGED", int64(codeOf[acknowledged])),
	}
}

func luaText(name, value string) luaName { return luaName{name, "'" + value + "'"} }

func luaNumber(name string, value int64) luaName { return luaName{name, strconv.FormatInt(value, 10)} }

// luaNames are the names of the archive. ARCHIVED is false where it is off.
func (a Archive) luaNames() []luaName {
	archived := luaName{"ARCHIVED", "false"}
	if a.on() {
		archived = luaNumber("ARCHIVED", a.Retention.Milliseconds())
	}
	return []luaName{
		archived,
		luaNumber("ARCHIVEMOST", a.mostOfShard),
		luaNumber("ARCHIVEBODY", int64(a.MaxBody)),
		luaText("ARCHIVE", archiveName),
		luaText("ARCHIVEFULL", archiveFullName),
		luaText("DROPPED", droppedName),
		luaText("DISCARDED", discarded),
		luaNumber("DONE", int64(codeOf[halfmsg.Done])),
	}
}

// betweenWords says whether a character is no part of a word of Lua.
func betweenWords(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// luaHead is the line before a script that defines the shared names that the script uses. Each takes time at each call.
func luaHead(source string, times luaTimes, archive Archive) string {
	used := map[string]bool{}
	for word := range strings.FieldsFuncSeq(source, betweenWords) {
		used[word] = true
	}
	var names, values []string
	for _, n := range luaNames(times, archive) {
		if used[n.name] {
			names, values = append(names, n.name), append(values, n.value)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "local " + strings.Join(names, ", ") + " = " + strings.Join(values, ", ") + "\n"
}
