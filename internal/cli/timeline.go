package cli

import (
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// event is a line of a message's timeline in --output json.
type event struct {
	Name    string     `json:"name"`
	FirstAt *time.Time `json:"first_at"`
	LastAt  *time.Time `json:"last_at"`
	Count   int32      `json:"count"`
	By      string     `json:"by,omitempty"`
	Cause   string     `json:"cause,omitempty"`
}

func newEvents(timeline []*adminv1.Event) (events []event) {
	for _, e := range timeline {
		events = append(events, event{
			Name: operate.Word(e.GetKind()), FirstAt: moment(e.GetFirstTime()), LastAt: moment(e.GetLastTime()),
			Count: e.GetCount(),
			By:    e.GetActor(), Cause: e.GetCause(),
		})
	}
	return events
}

// timelineRows gives a message's timeline for people, oldest first, between blank lines; none of a coordinator that
// tells none.
func timelineRows(timeline []*adminv1.Event, now time.Time) [][]string {
	if len(timeline) == 0 {
		return nil
	}
	rows := [][]string{{}, {"TIME (UTC)", "LAST", "TIMES", "WHAT HAPPENED", "BY", "CAUSE"}}
	for _, e := range timeline {
		rows = append(rows, []string{
			e.GetFirstTime().AsTime().Format("2006-01-02 15:04:05.000"), ageOf(e.GetLastTime(), now),
			strconv.Itoa(int(e.GetCount())),
			halfmsg.Meaning(operate.Word(e.GetKind())), e.GetActor(), e.GetCause(),
		})
	}
	return append(rows, []string{})
}
