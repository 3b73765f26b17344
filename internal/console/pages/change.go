package pages

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// countTime and changeTime bound the counting and changing of a request; the rest is offered as the next step.
	countTime  = 2 * time.Second
	changeTime = 10 * time.Second
	// shownNames is how many single messages a page tells of.
	shownNames = 50
)

// countData is the form that shows the number of messages before a change, and asks for a reason.
type countData struct {
	selection
	form
	Refused []refusal
	// Groups are what all that match would be; nil for single messages.
	Groups *groupsData
}

// changedData is the result of a change.
type changedData struct {
	selection
	Reason     string
	Done       int64
	Refused    []refusal
	More, Back string
	Problem    string
	status     int // of the problem
}

// refusal is a message that cannot be changed.
type refusal struct {
	Name, Why string
}

// count shows how many messages a retry or a discard would change, and changes nothing.
func (p *Pages) count(r *http.Request) answer {
	s, err := readSelection(r)
	if err != nil {
		return trouble(http.StatusBadRequest, "Invalid selection", err.Error())
	}
	if a, refused := p.mayChange(r, s.Action, "messages"); refused {
		return a
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	began := time.Now()
	refused, err := p.counted(r.Context(), admin, &s)
	if err != nil {
		return trouble(statusOf(err), "The messages cannot be counted", err.Error())
	}
	s.Counted = began
	data := countData{selection: s, form: p.newForm(r, s.text()), Refused: refused}
	if len(s.Names) == 0 && s.After == "" && s.Count > 0 {
		data.Groups = p.groups(r, admin, s.Filter)
	}
	return askMessages(data)
}

// askMessages shows the form.
func askMessages(data countData) answer {
	data.Verb, data.Target, data.Back = verbs[data.Action], "/change/do", "/messages?"+data.Filter.Query()
	switch {
	case !data.MayLose():
	case data.Count == 1:
		data.Lose = "This message may be lost"
	default:
		data.Lose = "These " + count(data.Count) + " messages may be lost"
	}
	return data.shown("count", data)
}

// counted counts the messages of a selection.
func (p *Pages) counted(ctx context.Context, admin Admin, s *selection) ([]refusal, error) {
	if len(s.Names) == 0 && !s.Filter.Narrow() && s.After == "" {
		return nil, p.countState(ctx, s)
	}
	ends := time.Now().Add(countTime)
	var outcomes []*msghandlerv1.Outcome
	counted, next, err := operate.Walk(math.MaxInt64, s.After, s.call(ctx, admin, true, "", &outcomes),
		func(int64) bool { return time.Now().Before(ends) })
	s.Count, s.AtLeast = counted, next != ""
	return s.refused(outcomes), err
}

// call makes the calls of a change, or counts in a dry run, and notes the outcomes of named messages.
func (s selection) call(
	ctx context.Context, admin Admin, dry bool, reason string, outcomes *[]*msghandlerv1.Outcome,
) func(limit int64, token string) (operate.MessagesAnswer, error) {
	return func(limit int64, token string) (operate.MessagesAnswer, error) {
		s.After = token
		answer, err := operate.ChangeMessages(ctx, admin, operate.Action(s.Action), s.request(dry, limit, reason))
		*outcomes = answer.GetOutcomes()
		return answer, err
	}
}

// countState counts a whole state, which the store knows without looking at its messages.
func (p *Pages) countState(ctx context.Context, s *selection) error {
	if !legal(s.Filter.state(), s.event()) {
		return RefusedError{
			http.StatusBadRequest,
			"messages in state " + s.Filter.State + " cannot be changed this way",
		}
	}
	stats, err := p.config.Stats(ctx)
	for _, stat := range stats {
		if stat.State == s.Filter.state() {
			s.Count = stat.Count
		}
	}
	return err
}

// refused lists the named messages that could not be changed.
func (s selection) refused(outcomes []*msghandlerv1.Outcome) (all []refusal) {
	for i, outcome := range outcomes {
		if outcome.GetCode() != 0 && i < len(s.Names) && len(all) < shownNames {
			all = append(all, refusal{s.Names[i].String(), outcome.GetError()})
		}
	}
	return all
}

// change does what a form asks for that count has made.
func (p *Pages) change(r *http.Request) answer {
	f := readForm(r)
	s, err := parseSelection(f.Hidden)
	if a, refused := p.mayChange(r, s.Action, "messages"); refused {
		return a
	}
	if err != nil || !p.valid(r, f, s.Counted) {
		return invalidForm()
	}
	if f.Reason == "" {
		return askMessages(countData{selection: s, form: f.withoutReason("message")})
	}
	if s.MayLose() && r.PostFormValue("lose") == "" {
		f.Problem = "Nothing was changed: say that these messages may be lost."
		return askMessages(countData{selection: s, form: f})
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	if !p.use(f, s.Counted) {
		return invalidForm()
	}
	data := p.do(r.Context(), admin, s, f.Reason)
	a := answer{page: "changed", title: "Done", data: data}
	if data.Problem != "" {
		a.status, a.title = data.status, "Not all messages were changed"
	}
	return a
}

// do changes the messages, no more than were counted.
func (p *Pages) do(ctx context.Context, admin Admin, s selection, reason string) changedData {
	data := changedData{selection: s, Reason: reason, Back: "/messages?" + s.Filter.Query()}
	ends := time.Now().Add(changeTime)
	var outcomes []*msghandlerv1.Outcome
	var err error
	data.Done, data.After, err = operate.Walk(s.Count, s.After, s.call(ctx, admin, false, reason, &outcomes),
		func(int64) bool { return time.Now().Before(ends) })
	data.Refused = s.refused(outcomes)
	if err != nil {
		data.Problem, data.status = err.Error(), statusOf(err)
	}
	if len(s.Names) == 0 && cmp.Or(data.After, data.Problem) != "" {
		data.More = "/change?" + selection{Action: s.Action, Filter: s.Filter, After: data.After}.Query()
	}
	return data
}

// address is where the page of a named message is.
func address(producer, id string) string {
	return "/message?" + url.Values{"producer": {producer}, "id": {id}}.Encode()
}
