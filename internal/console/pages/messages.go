package pages

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// pageSize is how many messages a page lists.
const pageSize = 100

// filter selects messages by the query of the page.
type filter struct {
	State                                  halfmsg.State
	Producer, Exchange, Broker, Error, Age string
	// ID begins the ids, Key is the routing key, Header is NAME=VALUE, and Cause the cause of a group.
	ID, Key, Header, Cause string
	age                    time.Duration
}

// errAge says how an age is written.
var errAge = errors.New("an age is a number and a unit, such as 90s, 15m or 2h")

// readFilter reads the address or the form of a page.
func readFilter(r *http.Request) (f filter, err error) {
	f = filter{
		Producer: strings.TrimSpace(r.FormValue("producer")), Exchange: r.FormValue("exchange"), Error: r.FormValue("error"),
		Broker: r.FormValue("broker"), Age: strings.TrimSpace(r.FormValue("age")),
		ID: strings.TrimSpace(r.FormValue("id")), Key: r.FormValue("key"), Header: r.FormValue("header"),
		Cause: r.FormValue("cause"),
	}
	var known bool
	if f.State, known = parseState(r.FormValue("state")); !known {
		f.State = halfmsg.Pending
		if r.FormValue("state") != "" {
			err = errors.New("unknown state: " + r.FormValue("state"))
		}
	}
	if f.Age != "" {
		var wrong error
		if f.age, wrong = time.ParseDuration(f.Age); wrong != nil || f.age < 0 {
			err = errAge
		}
	}
	return f, err
}

// Query is the filter as a part of an address.
func (f filter) Query() string {
	values := url.Values{"state": {f.State.String()}}
	for key, value := range map[string]string{
		"producer": f.Producer, "exchange": f.Exchange, "broker": f.Broker, "error": f.Error, "age": f.Age,
		"id": f.ID, "key": f.Key, "header": f.Header, "cause": f.Cause,
	} {
		if value != "" {
			values.Set(key, value)
		}
	}
	return values.Encode()
}

// Narrow says whether the filter has more than a state.
func (f filter) Narrow() bool { return f.Producer != "" || f.Exchange != "" || f.Searches() }

// Searches says whether the filter has more than a state, a producer and an exchange.
func (f filter) Searches() bool {
	return f.Broker != "" || f.Error != "" || f.Age != "" || f.ID != "" || f.Key != "" || f.Header != "" || f.Cause != ""
}

// minAge is the age for the API; 0 means any.
func minAge(age time.Duration) *durationpb.Duration {
	if age == 0 {
		return nil
	}
	return durationpb.New(age)
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
	State halfmsg.State
	Count int64
	Known bool
	Link  string
}

func (p *Pages) messages(r *http.Request) answer {
	f, err := readFilter(r)
	data := messagesData{
		Filter: f, HidesHeaders: p.hidesBodies(r),
		CanRetry:   legal(f.State, halfmsg.EventRetry) && p.canChange(r, actRetry),
		CanDiscard: legal(f.State, halfmsg.EventDiscard) && p.canChange(r, actDiscard),
	}
	stats, failed := p.config.Stats(r.Context())
	for _, stat := range stats {
		tab := f
		tab.State = stat.State
		data.States = append(data.States, stateTab{stat.State, stat.Count, failed == nil, "/messages?" + tab.Query()})
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
	a := answer{page: "messages", title: f.State.String() + " messages"}
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
		State: msghandlerv1.State(f.State), Producer: f.Producer, Exchange: f.Exchange, ErrorContains: f.Error,
		Broker: f.Broker, MinAge: minAge(f.age), IdPrefix: f.ID, RoutingKey: f.Key, Header: f.Header, Cause: f.Cause,
		PageSize: pageSize, PageToken: r.FormValue("after"),
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
