package pages

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// letterSelection selects letters to change: by name, or all that match.
type letterSelection struct {
	Action string
	Names  []string
	Filter letterFilter
	tally
}

// readLetterSelection reads the selection from a list or from the page of a letter.
func readLetterSelection(r *http.Request) (s letterSelection, err error) {
	s.Action = r.FormValue("action")
	if s.Action != actReplay && s.Action != actDiscard {
		return s, errors.New("choose whether to replay or to discard")
	}
	s.Names = r.Form["name"]
	for _, name := range s.Names {
		if !strings.Contains(name, "/") {
			return s, errors.New("a dead letter is named PRODUCER/ID")
		}
	}
	switch {
	case len(s.Names) > maxNames:
		return s, errors.New("select at most 1,000 dead letters, or all that match")
	case len(s.Names) == 0 && r.FormValue("all") == "":
		return s, errors.New("no dead letter was selected")
	}
	s.Filter, err = readLetterFilter(r)
	return s, err
}

// Query is the selection as a part of an address.
func (s letterSelection) Query() string {
	values := s.Filter.values()
	values.Set("action", s.Action)
	for _, name := range s.Names {
		values.Add("name", name)
	}
	if len(s.Names) == 0 {
		values.Set("all", "1")
	}
	return values.Encode()
}

// text serializes the selection for a form.
func (s letterSelection) text() string { return s.encode(s.Query()) }

// parseLetterSelection parses the result of text.
func parseLetterSelection(text string) (letterSelection, error) {
	tally, r, badTally := decodeTally(text)
	s, err := readLetterSelection(r)
	s.tally = tally
	return s, errors.Join(err, badTally)
}

// request is the selection as the API has it.
func (s letterSelection) request() *adminv1.DeadLetterSelection {
	if len(s.Names) == 0 {
		return &adminv1.DeadLetterSelection{Filter: operate.CountedDeadLetters(s.Filter.request(), s.Counted)}
	}
	selected := &adminv1.DeadLetterSelection{}
	for _, name := range s.Names {
		producer, id, _ := strings.Cut(name, "/")
		selected.Names = append(selected.Names, &adminv1.MessageName{Producer: producer, Id: id})
	}
	return selected
}

// letterCountData is the form that shows the number of letters before a change, and asks for a reason.
type letterCountData struct {
	letterSelection
	form
	Destinations []*adminv1.DeadLetterDestination
	Groups       *letterGroups
}

// countLetters shows how many letters a replay or a discard would change, and changes nothing.
func (p *Pages) countLetters(r *http.Request) answer {
	s, err := readLetterSelection(r)
	if err != nil {
		return trouble(http.StatusBadRequest, "Invalid selection", err.Error())
	}
	if a, refused := p.mayChange(r, s.Action, "dead letters"); refused {
		return a
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	s.Counted = time.Now()
	found, err := admin.CountDeadLetters(r.Context(), &adminv1.CountDeadLettersRequest{
		Queue: s.Filter.Queue, Selection: s.request(),
	})
	if err != nil {
		return trouble(statusOf(err), "The dead letters cannot be counted", err.Error())
	}
	s.Count, s.AtLeast = found.GetCount(), found.GetMore()
	data := letterCountData{letterSelection: s, form: p.newForm(r, s.text()), Groups: &letterGroups{}}
	for _, g := range found.GetGroups()[:min(len(found.GetGroups()), sheetRows)] {
		data.Groups.Rows = append(data.Groups.Rows, letterGroup{DeadLetterGroup: g})
	}
	data.Groups.Total = len(found.GetGroups())
	if s.Action == actReplay {
		data.Destinations = found.GetDestinations()
	}
	return askLetters(data)
}

// askLetters shows the form.
func askLetters(data letterCountData) answer {
	data.Verb, data.Target, data.Back = verbs[data.Action], "/letters/change/do", "/letters?"+data.Filter.Query()
	return data.shown("lettercount", data)
}

// lettersChangedData is the result of a change.
type lettersChangedData struct {
	letterSelection
	lettersChanged
	Reason, Back, Rest string
}

// lettersChanged is what a replay or a discard has done, whether letters may be left to change, and why letters stay.
type lettersChanged struct {
	Done    int64
	More    bool
	Problem string
}

// changeLetters does what a form asks for that countLetters has made.
func (p *Pages) changeLetters(r *http.Request) answer {
	f := readForm(r)
	s, err := parseLetterSelection(f.Hidden)
	if a, refused := p.mayChange(r, s.Action, "dead letters"); refused {
		return a
	}
	if err != nil || !p.valid(r, f, s.Counted) {
		return invalidForm()
	}
	if f.Reason == "" {
		return askLetters(letterCountData{letterSelection: s, form: f.withoutReason("dead letter")})
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	if !p.use(f, s.Counted) {
		return invalidForm()
	}
	done, err := s.change(r.Context(), admin, f.Reason)
	if err != nil {
		return trouble(statusOf(err), "Nothing was changed", err.Error())
	}
	data := lettersChangedData{
		letterSelection: s, lettersChanged: done, Reason: f.Reason, Back: "/letters?" + s.Filter.Query(),
	}
	if done.More {
		data.Rest = "/letters/change?" + s.Query()
	}
	return answer{page: "letterchanged", title: "Done", data: data}
}

// change replays or discards at most as many letters as were counted.
func (s letterSelection) change(ctx context.Context, admin Admin, reason string) (done lettersChanged, err error) {
	changed, err := operate.ChangeDeadLetters(ctx, admin, operate.Action(s.Action), &adminv1.DiscardDeadLettersRequest{
		Queue: s.Filter.Queue, Selection: s.request(), Reason: reason,
		Limit: int32(min(s.Count, maxLetters)), //nolint:gosec // at most maxLetters
	})
	return lettersChanged{changed.GetChanged(), changed.GetMore() || s.AtLeast, changed.GetProblem()}, err
}

// maxLetters is how many letters a call changes, and the most that a count finds.
const maxLetters = 10_000
