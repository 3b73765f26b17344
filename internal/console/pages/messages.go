package pages

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// pageSize is how many messages a page lists.
const pageSize = 100

// filter selects messages by the query of the page. It has the name of a state always.
type filter struct{ operate.MessageText }

// readFilter reads the address or the form of a page.
func readFilter(r *http.Request) (filter, error) {
	f := filter{operate.MessageText{
		State:    r.FormValue("state"),
		Producer: strings.TrimSpace(r.FormValue("producer")), Exchange: r.FormValue("exchange"), Error: r.FormValue("error"),
		Broker: r.FormValue("broker"), OlderThan: strings.TrimSpace(r.FormValue("age")),
		ID: strings.TrimSpace(r.FormValue("id")), RoutingKey: r.FormValue("key"), Header: r.FormValue("header"),
		Cause: r.FormValue("cause"),
	}}
	parsed, err := f.Filter()
	if f.state() == halfmsg.None || err == nil && parsed.GetState() == msghandlerv1.State_STATE_UNSPECIFIED {
		f.State = halfmsg.Pending.String()
	}
	return f, howWritten(err)
}

// howWritten says how a text is written that cannot be read. The reader sees which text that is.
func howWritten(err error) error {
	var wrong *operate.TextError
	if errors.As(err, &wrong) {
		return wrong.Err
	}
	return err
}

// ofState is the filter for the messages in a state.
func ofState(state halfmsg.State) filter { return filter{operate.MessageText{State: state.String()}} }

// state is the state of the messages.
func (f filter) state() halfmsg.State {
	state, _ := operate.ParseState(f.State) // None for no state
	return stateOf(state)
}

// request is the filter for the API; a filter that cannot be read selects nothing there.
func (f filter) request() *adminv1.MessageFilter {
	parsed, _ := f.Filter() // readFilter says why
	return parsed
}

// Query is the filter as a part of an address.
func (f filter) Query() string {
	return addressed(url.Values{"state": {f.State}}, map[string]string{
		"producer": f.Producer, "exchange": f.Exchange, "broker": f.Broker, "error": f.Error, "age": f.OlderThan,
		"id": f.ID, "key": f.RoutingKey, "header": f.Header, "cause": f.Cause,
	}).Encode()
}

// addressed adds the texts that are not empty to the values of an address.
func addressed(values url.Values, texts map[string]string) url.Values {
	for key, value := range texts {
		if value != "" {
			values.Set(key, value)
		}
	}
	return values
}

// Narrow says whether the filter has more than a state.
func (f filter) Narrow() bool { return f.Producer != "" || f.Exchange != "" || f.Searches() }

// Searches says whether the filter has more than a state, a producer and an exchange.
func (f filter) Searches() bool {
	f.State, f.Producer, f.Exchange = "", "", ""
	return f != filter{}
}

// messagesData is the data of a list.
type messagesData struct {
	Filter               filter
	States               []stateTab
	Producers, Exchanges []string
	// Brokers are the brokers that messages can be filtered by; none where there is only the default broker.
	Brokers []string
	Records []*adminv1.MessageRecord
	// Groups are above the first page.
	Groups *groupsData
	// HidesHeaders says why the reader cannot search headers; empty: the reader can.
	HidesHeaders         string
	Next, First          string
	Problem              string
	CanRetry, CanDiscard bool
	// RetryAll and DiscardAll lead to the counts of all matching messages.
	RetryAll, DiscardAll string
}

type stateTab struct {
	State string
	Count int64
	Known bool
	Link  string
}

func (p *Pages) messages(r *http.Request) answer {
	f, err := readFilter(r)
	data := messagesData{
		Filter: f, HidesHeaders: p.hidesBodies(r),
		CanRetry:   legal(f.state(), halfmsg.EventRetry) && p.canChange(r, actRetry),
		CanDiscard: legal(f.state(), halfmsg.EventDiscard) && p.canChange(r, actDiscard),
	}
	stats, failed := p.config.Stats(r.Context())
	for _, stat := range stats {
		tab := f
		tab.State = stat.State.String()
		data.States = append(data.States, stateTab{tab.State, stat.Count, failed == nil, "/messages?" + tab.Query()})
	}
	peers := p.config.Peers()
	for _, line := range peers.Producers() {
		data.Producers = append(data.Producers, line.Name)
	}
	data.setExchanges(peers.Exchanges())
	if data.CanRetry {
		data.RetryAll = "/change?" + selection{Action: actRetry, Filter: f}.Query()
	}
	if data.CanDiscard {
		data.DiscardAll = "/change?" + selection{Action: actDiscard, Filter: f}.Query()
	}
	if r.FormValue("after") != "" {
		data.First = "/messages?" + f.Query()
	}
	a := answer{page: "messages", title: f.State + " messages"}
	if err != nil {
		a.status, data.Problem = http.StatusBadRequest, err.Error()
	} else if err := p.fill(r, &data); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	}
	a.data = data
	return a
}

// setExchanges offers the exchanges, and the brokers where there are several, each once.
func (d *messagesData) setExchanges(exchanges []peerstats.Exchange) {
	for _, line := range exchanges {
		if !slices.Contains(d.Exchanges, line.Name) {
			d.Exchanges = append(d.Exchanges, line.Name)
		}
		if broker := cmp.Or(line.Broker, halfmsg.DefaultBroker); !slices.Contains(d.Brokers, broker) {
			d.Brokers = append(d.Brokers, broker)
		}
	}
	if slices.Equal(d.Brokers, []string{halfmsg.DefaultBroker}) {
		d.Brokers = nil
	}
}

// fill reads the page's messages.
func (p *Pages) fill(r *http.Request, data *messagesData) error {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return errNotOpen
	}
	f := data.Filter
	page, err := admin.ListMessages(r.Context(), &adminv1.ListMessagesRequest{
		Filter: f.request(), PageSize: pageSize, PageToken: r.FormValue("after"),
	})
	if err != nil {
		return err
	}
	if r.FormValue("after") == "" {
		data.Groups = p.groups(r, admin, f)
	}
	data.Records = page.GetRecords()
	if token := page.GetNextPageToken(); token != "" {
		data.Next = "/messages?" + f.Query() + "&" + url.Values{"after": {token}}.Encode()
	}
	return nil
}

// errNotOpen is the error while the admin API is not open yet.
var errNotOpen = errors.New("the coordinator is still starting")

// legal says whether an event may happen to messages of a state.
func legal(state halfmsg.State, event halfmsg.Event) bool {
	_, ok := halfmsg.Next(state, event)
	return ok
}
