package pages

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// actReplay is the action of publishing finished messages, or letters, again.
const actReplay = string(operate.Replay)

// replaySelection selects messages of the archive: one entry, or all that match a filter.
type replaySelection struct {
	// Producer, ID and Entry name one message.
	Producer, ID, Entry string
	Filter              finishedFilter
	// Suffix makes new ids; empty: each message keeps its id.
	Suffix string
	// At is the time of the first count. Messages that ended later do not match, also when the rest is counted: they may
	// be the replayed ones. After is the page token behind the replayed messages; empty at first.
	At    time.Time
	After string
	tally
}

// readReplay reads the selection of a form.
func readReplay(r *http.Request) (replaySelection, error) {
	s := replaySelection{
		Producer: r.FormValue("of"), ID: r.FormValue("message"), Entry: r.FormValue("entry"),
		Filter: readFinishedFilter(r), Suffix: strings.TrimSpace(r.FormValue("suffix")), After: r.FormValue("after"),
	}
	if at := r.FormValue("at"); at != "" {
		millis, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return s, errors.New("the time of the first count is no number: begin with the list again")
		}
		s.At = time.UnixMilli(millis)
	}
	if s.ID == "" && !s.Filter.Narrow() {
		return s, errors.New("narrow the list first, for example to an exchange or a time: " +
			"the whole archive is never replayed at once")
	}
	return s, nil
}

// values are the fields of a form for the selection.
func (s replaySelection) values() url.Values {
	values, _ := url.ParseQuery(s.Filter.Query()) // written by Query
	for key, value := range map[string]string{
		"of": s.Producer, "message": s.ID, "entry": s.Entry, "suffix": s.Suffix, "after": s.After,
		"at": strconv.FormatInt(s.At.UnixMilli(), 10),
	} {
		values.Set(key, value)
	}
	return values
}

// text serializes the selection for a form.
func (s replaySelection) text() string { return s.encode(s.values().Encode()) }

// parseReplay parses the result of text.
func parseReplay(text string) (replaySelection, error) {
	tally, r, badTally := decodeTally(text)
	s, err := readReplay(r)
	s.tally = tally
	return s, errors.Join(err, badTally)
}

// request converts the selection for the API.
func (s replaySelection) request(dry bool, limit int64, reason string) (*adminv1.ReplayMessagesRequest, error) {
	request := &adminv1.ReplayMessagesRequest{NewIdSuffix: s.Suffix, DryRun: dry, Reason: reason}
	if s.ID != "" {
		request.Selection = &adminv1.FinishedSelection{
			Names: []*adminv1.FinishedName{{Producer: s.Producer, Id: s.ID, Entry: s.Entry}},
		}
		return request, nil
	}
	filter, err := s.Filter.request(s.At)
	if err != nil {
		return nil, err
	}
	request.Selection = &adminv1.FinishedSelection{Filter: operate.CountedFinished(filter, s.At)}
	request.Limit = int32(min(limit, maxNames)) //nolint:gosec // it is small
	return request, nil
}

// replayData is the form that shows the number of messages before a replay, and asks for a reason, and then its result.
type replayData struct {
	replaySelection
	form
	// Refused says why the one message cannot be replayed.
	Refused       string
	Done, Skipped int64
	// Next is the page token behind the messages that were looked at; empty at the end.
	Next string
}

// Rest are the fields of a form that counts the messages behind the replayed ones; none at the end.
func (d replayData) Rest() url.Values {
	if d.Next == "" {
		return nil
	}
	d.After = d.Next
	return d.values()
}

// countReplay shows how many messages would be replayed, and changes nothing.
func (p *Pages) countReplay(r *http.Request) answer {
	s, err := readReplay(r)
	if err != nil {
		return trouble(http.StatusBadRequest, "Invalid selection", err.Error())
	}
	if a, refused := p.mayChange(r, actReplay, "messages"); refused {
		return a
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	s.Counted = time.Now()
	if s.At.IsZero() {
		s.At = s.Counted
	}
	data := replayData{replaySelection: s}
	if err := data.send(r.Context(), admin, true, ""); err != nil {
		return trouble(statusOf(err), "The messages cannot be counted", err.Error())
	}
	data.Count, data.Done, data.AtLeast = data.Done, 0, data.Next != ""
	data.form = p.newForm(r, data.text())
	return data.showForm()
}

// showForm shows the form.
func (d replayData) showForm() answer {
	d.Verb, d.Target, d.Back = verbs[actReplay], "/replay/do", "/finished?"+d.Filter.Query()
	return d.shown("replay", d)
}

// send replays or counts the messages, call after call.
func (d *replayData) send(ctx context.Context, admin Admin, dry bool, reason string) (err error) {
	most, ends := int64(maxChange), time.Now().Add(countTime)
	if !dry {
		most, ends = d.Count, time.Now().Add(changeTime)
	}
	d.Done, d.Next, err = operate.Walk(most, d.After, func(limit int64, token string) (operate.MessagesAnswer, error) {
		request, err := d.request(dry, limit, reason)
		if err != nil {
			return nil, err
		}
		request.PageToken = token
		response, err := admin.ReplayMessages(ctx, request)
		d.Skipped += response.GetSkipped()
		for _, outcome := range response.GetOutcomes() {
			d.Refused = outcome.GetError()
		}
		return response, err
	}, func(int64) bool { return time.Now().Before(ends) })
	return err
}

// replay does what a form asks for that countReplay has made.
func (p *Pages) replay(r *http.Request) answer {
	f := readForm(r)
	s, err := parseReplay(f.Hidden)
	if a, refused := p.mayChange(r, actReplay, "messages"); refused {
		return a
	}
	if err != nil || !p.valid(r, f, s.Counted) {
		return invalidForm()
	}
	if f.Reason == "" {
		return replayData{replaySelection: s, form: f.withoutReason("message")}.showForm()
	}
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	if !p.use(f, s.Counted) {
		return invalidForm()
	}
	data := replayData{replaySelection: s, form: f}
	a := answer{page: "replayed", title: "Replayed"}
	if err := data.send(r.Context(), admin, false, data.Reason); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	}
	data.Back = "/finished?" + s.Filter.Query()
	a.data = data
	return a
}
