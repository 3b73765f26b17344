package redis

import (
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A timeline is a text in the notes, a line for each happening, the newest first; the scripts write it:
//
//	FIRST_MS LAST_MS TIMES WHAT BY CAUSE
//
// BY holds no blank; the cause is the rest of the line.

// unnamed stands in place of a name that is not known.
const unnamed = "-"

// readTimeline reads what the scripts wrote. Other lines are left out.
func readTimeline(text string) halfmsg.Timeline {
	var timeline halfmsg.Timeline
	for line := range strings.SplitSeq(strings.ToValidUTF8(text, "?"), "\n") {
		if h, ok := readHappening(line); ok {
			timeline = append(timeline, h)
		}
	}
	slices.Reverse(timeline)
	return timeline
}

func readHappening(line string) (h halfmsg.Happening, ok bool) {
	const parts = 6
	fields := strings.SplitN(line, " ", parts)
	if len(fields) < parts {
		return h, false
	}
	h = halfmsg.Happening{
		First: timeAt(number(fields[0])), Last: timeAt(number(fields[1])), Times: int(number(fields[2])),
		What: fields[3], By: fields[4], Cause: fields[5],
	}
	if h.By == unnamed {
		h.By = ""
	}
	return h, h.Times > 0 && h.What != "" && !h.First.IsZero() && !h.Last.IsZero()
}
