package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// recorder is an API that discards three messages a call, always has more, fails from some call on, and remembers what
// it was asked.
type recorder struct {
	noGroups
	fails int
	asked []*adminv1.DiscardMessagesRequest
	at    time.Time // of the last call
}

func (a *recorder) DiscardMessages(
	_ context.Context, r *adminv1.DiscardMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.DiscardMessagesResponse, error) {
	a.asked, a.at = append(a.asked, r), time.Now()
	if len(a.asked) == a.fails {
		return nil, halfmsg.ErrUnavailable
	}
	next := "behind"
	if r.GetDryRun() {
		next = ""
	}
	return &adminv1.DiscardMessagesResponse{Changed: 3, NextPageToken: next}, nil
}

// confirm sends the form of a selection as an operator does who looked at the count for a while.
func confirm(p *Pages, s selection, looked time.Duration) changedData {
	s.Counted = time.Now().Add(-looked)
	hidden := s.text()
	admin := as(access.Admin, httptest.NewRequest(http.MethodPost, "/change/do", nil))
	form := url.Values{"selection": {hidden}, "token": {p.tokens.Token(signed(admin, hidden))}, "reason": {"test orders"}}
	r := as(access.Admin, httptest.NewRequest(http.MethodPost, "/change/do", strings.NewReader(form.Encode())))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	data, _ := p.change(r).data.(changedData)
	return data
}

func TestOnlyCountedMessagesAreChanged(t *testing.T) {
	t.Parallel()
	dead := ofState(halfmsg.Dead)
	dead.Producer = "orders"
	older := dead
	older.OlderThan = "1h"
	for name, c := range map[string]struct {
		selection selection
		want      time.Duration
	}{
		"all of a filter": {selection{Filter: dead}, 5 * time.Minute},
		"all of an age":   {selection{Filter: older}, time.Hour + 5*time.Minute},
		// A message that arrived between the two forms is as new to the operator as a message that arrived between the first
		// two.
		"the rest":           {selection{Filter: dead, After: "before"}, 5 * time.Minute},
		"the rest of an age": {selection{Filter: older, After: "before"}, time.Hour + 5*time.Minute},
		"by name":            {selection{Filter: dead, Names: []halfmsg.Name{{Producer: "orders", ID: "1"}}}, 0},
	} {
		api := &recorder{fails: 3}
		p := New(Config{Admin: func(string) Admin { return api }})
		c.selection.Action, c.selection.Count = actDiscard, 9
		began := time.Now()
		data := confirm(p, c.selection, 5*time.Minute)
		slack := time.Since(began) + time.Millisecond // the form holds milliseconds
		if len(api.asked) != 3 || data.Done != 6 || data.Problem == "" {
			t.Errorf("%s: asked %d times, did %+v", name, len(api.asked), data)
		}
		for _, r := range api.asked {
			age := r.GetSelection().GetFilter().GetMinAge().AsDuration()
			if age < c.want || age > c.want+slack {
				t.Errorf("%s: changes messages of at least %s, want %s", name, age, c.want)
			}
		}
		if len(c.selection.Names) > 0 {
			continue
		}
		next, err := readSelection(httptest.NewRequest(http.MethodGet, data.More, nil))
		// The rest is counted again, because the operator has not seen its number yet.
		if err != nil || next.After != "behind" ||
			next.request(true, 1, "").GetSelection().GetFilter().GetMinAge().AsDuration() !=
				c.selection.Filter.request().GetMinAge().AsDuration() {
			t.Errorf("%s: goes on with %s: %v", name, data.More, err)
		}
	}
}

// The time is from before the count, in milliseconds: a whole second would exclude counted messages, and messages that
// arrive during the count may be in no number.
func TestFormHoldsTimeOfCount(t *testing.T) {
	t.Parallel()
	api := &recorder{}
	p := New(Config{Admin: func(string) Admin { return api }})
	began := time.Now().Truncate(time.Millisecond)
	asked := p.count(as(access.Admin,
		httptest.NewRequest(http.MethodGet, "/change?action=discard&all=1&state=dead&producer=orders", nil)))
	data, _ := asked.data.(countData)
	s, err := parseSelection(data.Hidden)
	if err != nil || s.Counted.Before(began) || s.Counted.After(api.at.Truncate(time.Millisecond)) {
		t.Errorf("counted at %s, not from %s to %s: %v", s.Counted, began, api.at, err)
	}
	if len(api.asked) != 1 || api.asked[0].GetSelection().GetFilter().GetMinAge() != nil {
		t.Errorf("asked %v", api.asked)
	}
}

// The businesses of messages without a verdict may have committed: a second tick is needed to lose their messages.
func TestDiscardWithoutVerdictNeedsATick(t *testing.T) {
	t.Parallel()
	for state, want := range map[halfmsg.State]int{halfmsg.Pending: 0, halfmsg.Abandoned: 0, halfmsg.Dead: 1} {
		api := &recorder{}
		p := New(Config{Admin: func(string) Admin { return api }})
		s := selection{Action: actDiscard, Filter: ofState(state), tally: tally{Count: 3}}
		confirm(p, s, 0)
		if len(api.asked) != want {
			t.Errorf("%s: asked %v", state, api.asked)
		}
	}
	var page strings.Builder
	asked := askMessages(countData{selection: selection{
		Action: actDiscard, Filter: ofState(halfmsg.Pending), tally: tally{Count: 1200},
	}})
	must.Succeed(t, templates["count"].Execute(&page, frame{Data: asked.data}))
	for _, text := range []string{
		"The businesses of these 1,200 messages may have committed.", "the archive cannot replay them",
		`name="lose"`, "These 1,200 messages may be lost",
	} {
		if !strings.Contains(page.String(), text) {
			t.Errorf("the page lacks %q", text)
		}
	}
}
