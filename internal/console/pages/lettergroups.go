package pages

import (
	"cmp"
	"net/http"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// letterGroups are the groups of the dead letters that match a filter, the largest first.
type letterGroups struct {
	sheet[letterGroup]
	// More says that the look ended early: there may be further dead letters.
	More bool
	// Acts says that each group has its links.
	Acts bool
	// Problem is why the groups are not known; empty: they are.
	Problem string
}

// letterGroup is a group with its list and its changes.
type letterGroup struct {
	*adminv1.DeadLetterGroup
	Link, Replay, Discard string
}

// letterGrouping is the groups for the template.
type letterGrouping struct {
	Groups *letterGroups
	Now    time.Time
}

// groupLetters reads the groups of the dead letters of a list.
func groupLetters(r *http.Request, admin Admin, of *lettersData) *letterGroups {
	selected := &adminv1.DeadLetterSelection{Filter: of.Filter.request()}
	found, err := admin.CountDeadLetters(r.Context(), &adminv1.CountDeadLettersRequest{
		Queue: of.Filter.Queue, Selection: selected,
	})
	if err != nil {
		return &letterGroups{Problem: err.Error()}
	}
	var all []letterGroup
	for _, g := range found.GetGroups() {
		f := of.Filter
		f.Like = g.GetCause()
		f.Consumer, f.RoutingKey = cmp.Or(g.GetConsumer(), halfmsg.EmptyField), cmp.Or(g.GetRoutingKey(), halfmsg.EmptyField)
		f.Exchange = cmp.Or(g.GetExchange(), halfmsg.DefaultExchange)
		line := letterGroup{DeadLetterGroup: g}
		if g.GetCause() != operate.OtherCauses {
			line.Link = "/letters?" + f.Query()
		}
		if of.CanReplay && line.Link != "" {
			line.Replay = "/letters/change?" + letterSelection{Action: actReplay, Filter: f}.Query()
		}
		if of.CanDiscard && line.Link != "" {
			line.Discard = "/letters/change?" + letterSelection{Action: actDiscard, Filter: f}.Query()
		}
		all = append(all, line)
	}
	return &letterGroups{sheet: newSheet(r, "groups", all, nil), More: found.GetMore(), Acts: true}
}
