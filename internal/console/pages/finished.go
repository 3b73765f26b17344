package pages

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// finishedFilter is the filter of the page of finished messages, as its form has it.
type finishedFilter struct{ operate.FinishedText }

func readFinishedFilter(r *http.Request) finishedFilter {
	value := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	return finishedFilter{operate.FinishedText{
		Producer: value("producer"), ID: value("id"), State: value("ended"), Exchange: value("exchange"),
		RoutingKey: value("key"), Header: value("header"), Since: value("since"), Until: value("until"),
	}}
}

// Query is the filter as a part of an address.
func (f finishedFilter) Query() string {
	return addressed(url.Values{}, map[string]string{
		"producer": f.Producer, "id": f.ID, "ended": f.State, "exchange": f.Exchange, "key": f.RoutingKey,
		"header": f.Header, "since": f.Since, "until": f.Until,
	}).Encode()
}

// Narrow says whether the filter leaves anything out.
func (f finishedFilter) Narrow() bool { return f != finishedFilter{} }

// request is the filter for the API, as of now.
func (f finishedFilter) request(now time.Time) (*adminv1.FinishedFilter, error) {
	filter, err := f.Filter(now)
	if err != nil {
		return nil, RefusedError{Status: http.StatusBadRequest, Text: howWritten(err).Error()}
	}
	return filter, nil
}

// finishedTab leads to the messages that ended in one way; empty: in any.
type finishedTab struct{ Ended, Text, Link string }

// finishedTabs are the tabs above a list.
func finishedTabs(f finishedFilter) (tabs []finishedTab) {
	for _, ended := range []string{"", "discarded", "done", "rolled_back"} {
		of := f
		of.State = ended
		tabs = append(tabs, finishedTab{ended, cmp.Or(strings.ReplaceAll(ended, "_", " "), "all"), "/finished?" + of.Query()})
	}
	return tabs
}

// finishedData is the data of the page of finished messages.
type finishedData struct {
	Filter   finishedFilter
	Tabs     []finishedTab
	Messages []*adminv1.FinishedMessage
	// Archive says that the messages are from the archive.
	Archive, CanReplay   bool
	Next, First, Problem string
	// Archived is how many messages the archive holds, Oldest since when, and Dropped how many it did not take lately.
	Archived, Dropped int64
	Oldest            time.Time
}

// finished lists finished messages, the newest first.
func (p *Pages) finished(r *http.Request) answer {
	data := finishedData{Filter: readFinishedFilter(r)}
	data.Tabs = finishedTabs(data.Filter)
	if r.FormValue("after") != "" {
		data.First = "/finished?" + data.Filter.Query()
	}
	a := answer{page: "finished", title: "Finished messages"}
	if err := p.fillFinished(r, &data); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	}
	data.CanReplay = data.Archive && p.canChange(r, actReplay)
	a.data = data
	return a
}

// fillFinished reads the page's messages.
func (p *Pages) fillFinished(r *http.Request, data *finishedData) error {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return errNotOpen
	}
	filter, err := data.Filter.request(time.Now())
	if err != nil {
		return err
	}
	page, err := admin.ListFinished(r.Context(), &adminv1.ListFinishedRequest{
		Filter: filter, PageSize: pageSize, PageToken: r.FormValue("after"),
	})
	if err != nil {
		return err
	}
	data.Messages, data.Archive = page.GetMessages(), page.GetFromArchive()
	data.Archived, data.Dropped, data.Oldest = page.GetArchiveSize(), page.GetArchiveDropped(),
		timeOf(page.GetArchiveOldestTime())
	slices.SortStableFunc(data.Messages, func(a, b *adminv1.FinishedMessage) int {
		return timeOf(b.GetFinishTime()).Compare(timeOf(a.GetFinishTime()))
	})
	if token := page.GetNextPageToken(); token != "" {
		values := url.Values{"after": {token}}
		data.Next = "/finished?" + strings.TrimPrefix(data.Filter.Query()+"&"+values.Encode(), "&")
	}
	return nil
}

// archivedData is the data of the page of a message in the archive.
type archivedData struct {
	Message   *adminv1.FinishedMessage
	Content   content
	CanReplay bool
}

// archived shows a message of the archive.
func (p *Pages) archived(r *http.Request) answer {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	name := halfmsg.Name{Producer: r.FormValue("producer"), ID: r.FormValue("id")}
	found, err := admin.GetFinished(r.Context(), &adminv1.GetFinishedRequest{
		Producer: name.Producer, Id: name.ID, Entry: r.FormValue("entry"),
	})
	switch {
	case errors.Is(err, halfmsg.ErrNotFound):
		return trouble(http.StatusNotFound, "No message "+name.String()+" in the archive",
			"It has not ended, or it ended longer ago than archive.retention, or the archive had no room for it any more.")
	case err != nil:
		return trouble(statusOf(err), "Message "+name.String(), err.Error())
	}
	m := found.GetMessage()
	data := archivedData{
		Message: m, CanReplay: m.GetReplayable() && p.canChange(r, actReplay),
		Content: p.content(r, archivedLink(m), m.GetMessage().GetHeaders(), m.GetMessage().GetBody()),
	}
	data.Content.LeftOut = m.GetBodyOmitted()
	return answer{page: "archived", title: name.String(), data: data}
}

// archivedLink leads to the page of a message in the archive; of a receipt to the page of the message.
func archivedLink(m *adminv1.FinishedMessage) string {
	if m.GetEntry() == "" {
		return address(m.GetProducer(), m.GetMessage().GetId())
	}
	return "/finished/message?" + url.Values{
		"producer": {m.GetProducer()}, "id": {m.GetMessage().GetId()}, "entry": {m.GetEntry()},
	}.Encode()
}
