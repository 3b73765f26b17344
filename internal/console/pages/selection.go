package pages

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The actions.
const (
	actRetry   = string(operate.Retry)
	actDiscard = string(operate.Discard)
)

// selection selects messages to change: by name, or all that match.
type selection struct {
	Action string
	Names  []halfmsg.Name
	Filter filter
	// After is where the next request continues.
	After string
	tally
}

// maxNames is how many messages can be selected by hand; the API takes no more at once either.
const maxNames = 1000

// readSelection reads the selection from a list or from the page of a message.
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

// MayLose says that the businesses of the messages may have committed: a discard then loses their messages.
func (s selection) MayLose() bool {
	return s.Action == actDiscard && (s.Filter.state() == halfmsg.Pending || s.Filter.state() == halfmsg.Abandoned)
}

// event is the event for the messages.
func (s selection) event() halfmsg.Event {
	if s.Action == actDiscard {
		return halfmsg.EventDiscard
	}
	return halfmsg.EventRetry
}

// Query is the selection as a part of an address.
func (s selection) Query() string {
	values, _ := url.ParseQuery(s.Filter.Query()) // written by text
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

// text serializes the selection for a form.
func (s selection) text() string { return s.encode(s.Query()) }

// parseSelection parses the result of text.
func parseSelection(text string) (selection, error) {
	tally, r, badTally := decodeTally(text)
	s, err := readSelection(r)
	s.tally = tally
	return s, errors.Join(err, badTally)
}

// request converts the selection for the API. A discard's request has all fields of a retry's.
func (s selection) request(dry bool, limit int64, reason string) *adminv1.DiscardMessagesRequest {
	selected := &adminv1.MessageSelection{}
	r := &adminv1.DiscardMessagesRequest{Selection: selected, DryRun: dry, Reason: reason}
	for _, name := range s.Names {
		selected.Names = append(selected.Names, &adminv1.MessageName{Producer: name.Producer, Id: name.ID})
	}
	if len(s.Names) > 0 {
		if s.Action == actDiscard {
			r.ExpectedState = msghandlerv1.State(s.Filter.state())
		}
		return r
	}
	if selected.Filter = s.Filter.request(); !s.Counted.IsZero() {
		selected.Filter = operate.CountedMessages(selected.GetFilter(), s.Counted)
	}
	r.PageToken, r.Limit = s.After, int32(min(limit, maxChange)) //nolint:gosec // it is small
	return r
}

// maxChange bounds the messages of a call of the API.
const maxChange = 10_000
