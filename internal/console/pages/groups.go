package pages

import (
	"cmp"
	"net/http"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// groupsData is the groups of the messages that match a filter.
type groupsData struct {
	Groups []groupLine
	// Exact says that all messages were read. Otherwise the counts are estimates from Looked of Total messages.
	Exact         bool
	Looked, Total int64
	// More is the number of groups that are not shown.
	More int32
	// Problem is why the groups are not known; empty: they are.
	Problem              string
	CanRetry, CanDiscard bool
}

// grouping is the groups for the template: Acts says that each group has its links.
type grouping struct {
	Groups *groupsData
	Now    time.Time
	Acts   bool
}

// groupLine is a group with its list and its changes.
type groupLine struct {
	*adminv1.MessageGroup
	// Link leads to the messages of the group; empty: they are listed already.
	Link, Retry, Discard string
	advice
}

// groups reads the groups of the messages that match a filter.
func (p *Pages) groups(r *http.Request, admin Admin, f filter) *groupsData {
	found, err := admin.GroupMessages(r.Context(), &adminv1.GroupMessagesRequest{Filter: f.request()})
	if err != nil {
		return &groupsData{Problem: err.Error()}
	}
	data := &groupsData{
		Exact:  found.GetSampleSize() == found.GetTotalSize(),
		Looked: found.GetSampleSize(), Total: found.GetTotalSize(), More: found.GetOmittedGroups(),
		CanRetry: legal(f.state(), halfmsg.EventRetry) && p.canChange(r, actRetry),
	}
	data.CanDiscard = legal(f.state(), halfmsg.EventDiscard) && p.canChange(r, actDiscard)
	for _, g := range found.GetGroups() {
		line := groupLine{MessageGroup: g, advice: known{
			f.state(), g.GetExampleError(), g.GetProducer(), g.GetExchange(), "",
		}.advised()}
		of := f.of(g)
		if of != f {
			line.Link = "/messages?" + of.Query()
		}
		line.Retry = "/change?" + selection{Action: actRetry, Filter: of}.Query()
		line.Discard = "/change?" + selection{Action: actDiscard, Filter: of}.Query()
		data.Groups = append(data.Groups, line)
	}
	return data
}

// Tell says whether the groups tell more than the list of the messages does.
func (d *groupsData) Tell() bool {
	return d.Problem != "" || len(d.Groups) > 1 || len(d.Groups) == 1 && d.Groups[0].GetCause() != ""
}

// of is the filter for the messages of a group alone.
func (f filter) of(g *adminv1.MessageGroup) filter {
	f.Producer, f.Cause = g.GetProducer(), cmp.Or(g.GetCause(), halfmsg.NoCause)
	if f.state() != halfmsg.Acknowledged { // whose exchange and broker are not known any more
		f.Exchange = cmp.Or(g.GetExchange(), halfmsg.DefaultExchange)
		f.Broker = cmp.Or(g.GetBroker(), halfmsg.DefaultBroker)
	}
	return f
}
