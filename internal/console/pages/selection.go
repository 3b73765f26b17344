package pages

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The actions.
const (
	actRetry   = "retry"
	actDiscard = "discard"
)

// selection is what somebody wants to change: messages by name, or all that match.
type selection struct {
	Action string
	Names  []halfmsg.Name
	Filter filter
	// After is where to go on, for what one request did not get done.
	After string
	// Counted is when they were counted: what came, or came of age, since then is left out, or it would take the place of what
	// was counted and has gone meanwhile. Zero before.
	Counted time.Time
	// Count is how many messages were counted; no more than that are changed. AtLeast says that counting was not finished.
	Count   int64
	AtLeast bool
}

// maxNames is how many messages can be selected by hand; the API takes no more at once either.
const maxNames = 1000

// readSelection reads what somebody chose on a list or on a message's page.
func readSelection(r *http.Request) (selection, error) {
	s := selection{Action: r.FormValue("action"), After: r.FormValue("after")}
	if s.Action != actRetry && s.Action != actDiscard {
		return s, errors.New("choose whether to retry or to discard")
	}
	for _, text := range r.Form["name"] {
		name, err := halfmsg.ParseName(text)
		if err != nil {
			return s, err
		}
		s.Names = append(s.Names, name)
	}
	if len(s.Names) > maxNames {
		return s, errors.New("select at most 1,000 messages, or all that match")
	}
	if len(s.Names) == 0 && r.FormValue("all") == "" {
		return s, errors.New("no message was selected")
	}
	var err error
	s.Filter, err = readFilter(r)
	return s, err
}

// event is what happens to the messages.
func (s selection) event() halfmsg.Event {
	if s.Action == actDiscard {
		return halfmsg.EventDiscard
	}
	return halfmsg.EventRetry
}

// Query is the selection as a part of an address.
func (s selection) Query() string {
	values, _ := url.ParseQuery(s.Filter.Query()) // it is ours
	values.Set("action", s.Action)
	for _, name := range s.Names {
		values.Add("name", name.String())
	}
	if len(s.Names) == 0 {
		values.Set("all", "1")
	}
	if s.After != "" {
		values.Set("after", s.After)
	}
	return values.Encode()
}

// text writes the selection down for a form that may be sent once.
func (s selection) text() string {
	return s.Query() + "&" + url.Values{
		"count": {strconv.FormatInt(s.Count, 10)}, "counted": {strconv.FormatInt(s.Counted.UnixMilli(), 10)}, "once": {rand.Text()},
	}.Encode()
}

// parseSelection reads what text has written.
func parseSelection(text string) (s selection, err error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return s, err
	}
	if s, err = readSelection(&http.Request{Form: values}); err != nil {
		return s, err
	}
	millis, err := strconv.ParseInt(values.Get("counted"), 10, 64)
	if err != nil {
		return s, err
	}
	s.Counted = time.UnixMilli(millis)
	s.Count, err = strconv.ParseInt(values.Get("count"), 10, 64)
	return s, err
}

// request is the selection as the API takes it. Retry and discard have the same fields.
func (s selection) request(dry bool, limit int64, reason string) *msghandlerv1.DiscardMessagesRequest {
	r := &msghandlerv1.DiscardMessagesRequest{DryRun: dry, Reason: reason}
	for _, name := range s.Names {
		r.Names = append(r.Names, &msghandlerv1.MessageName{Producer: name.Producer, Id: name.ID})
	}
	if len(s.Names) > 0 {
		if s.Action == actDiscard {
			r.State = msghandlerv1.State(s.Filter.State)
		}
		return r
	}
	f := s.Filter
	r.State, r.Producer, r.Exchange, r.ErrorContains = msghandlerv1.State(f.State), f.Producer, f.Exchange, f.Error
	r.MinAge, r.PageToken = minAge(s.age(time.Now())), s.After
	r.Limit = int32(min(limit, maxChange)) //nolint:gosec // it is small
	return r
}

// age is how old messages must be by now. It is an age and no time, so that only the store's clock decides.
func (s selection) age(now time.Time) time.Duration {
	if s.Counted.IsZero() {
		return s.Filter.age
	}
	return s.Filter.age + now.Sub(s.Counted)
}

// maxChange is how many messages one call of the API changes.
const maxChange = 10_000
