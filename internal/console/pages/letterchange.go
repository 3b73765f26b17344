package pages

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/console/formtoken"
)

// letterSelection selects letters to change: by name, or all that match.
type letterSelection struct {
	Action string
	Names  []string
	Filter letterFilter
	// Counted is the time of the count. Letters that come of age since then are excluded.
	Counted time.Time
	// Count is the number of counted letters; at most as many are changed. AtLeast says that the count is incomplete.
	Count   int
	AtLeast bool
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
			return s, errors.New("a letter is named PRODUCER/ID")
		}
	}
	switch {
	case len(s.Names) > maxNames:
		return s, errors.New("select at most 1,000 letters, or all that match")
	case len(s.Names) == 0 && r.FormValue("all") == "":
		return s, errors.New("no letter was selected")
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
func (s letterSelection) text() string {
	return s.Query() + "&" + url.Values{
		"count": {strconv.Itoa(s.Count)}, "counted": {strconv.FormatInt(s.Counted.UnixMilli(), 10)}, "once": {rand.Text()},
	}.Encode()
}

// parseLetterSelection parses the result of text.
func parseLetterSelection(text string) (s letterSelection, err error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return s, err
	}
	if s, err = readLetterSelection(&http.Request{Form: values}); err != nil {
		return s, err
	}
	millis, err := strconv.ParseInt(values.Get("counted"), 10, 64)
	if err != nil {
		return s, err
	}
	s.Counted = time.UnixMilli(millis)
	s.Count, err = strconv.Atoi(values.Get("count"))
	return s, err
}

// query is the selection for the port. An age grows with the time since the count, so that no letter comes of age.
func (s letterSelection) query(now time.Time) LetterQuery {
	query := s.Filter.query(s.Names...)
	if query.OlderThan > 0 && !s.Counted.IsZero() {
		query.OlderThan += now.Sub(s.Counted)
	}
	return query
}

// letterCountData is the form that shows the number of letters before a change, and asks for a reason.
type letterCountData struct {
	letterSelection
	Hidden, Token, Reason, Problem, Back string
}

// mayChangeLetters is the answer to a caller who may not change letters.
func (p *Pages) mayChangeLetters(r *http.Request, action string) (answer, bool) {
	if p.config.ReadOnly {
		return trouble(http.StatusForbidden, "This console is read-only",
			"http.read_only is set. Use the command line where you are allowed to: msghandler dlq."), true
	}
	return p.needs(r, roleFor(action), gerunds[action]+" letters")
}

// countLetters shows how many letters a replay or a discard would change, and changes nothing.
func (p *Pages) countLetters(r *http.Request) answer {
	s, err := readLetterSelection(r)
	if err != nil {
		return trouble(http.StatusBadRequest, "Invalid selection", err.Error())
	}
	if a, refused := p.mayChangeLetters(r, s.Action); refused {
		return a
	}
	letters := p.config.Letters(r.RemoteAddr)
	if letters == nil {
		return notOpen()
	}
	s.Counted = time.Now()
	if s.Count, s.AtLeast, err = letters.Count(r.Context(), s.query(s.Counted)); err != nil {
		return trouble(statusOf(err), "The letters cannot be counted", err.Error())
	}
	hidden := s.text()
	return askLetters(letterCountData{letterSelection: s, Hidden: hidden, Token: p.tokens.Token(signed(r, hidden))})
}

// askLetters shows the form.
func askLetters(data letterCountData) answer {
	data.Back = "/letters?" + data.Filter.Query()
	a := answer{page: "lettercount", title: strings.ToUpper(data.Action[:1]) + data.Action[1:], data: data}
	if data.Problem != "" {
		a.status = http.StatusBadRequest
	}
	return a
}

// lettersChangedData is the result of a change.
type lettersChangedData struct {
	letterSelection
	LettersChanged
	Reason, Back, Rest string
}

// changeLetters does what a form asks for that countLetters has made.
func (p *Pages) changeLetters(r *http.Request) answer {
	hidden, token := r.PostFormValue("selection"), r.PostFormValue("token")
	s, err := parseLetterSelection(hidden)
	until := s.Counted.Add(formtoken.Lifetime)
	if err == nil {
		err = p.tokens.Check(signed(r, hidden), token, until, time.Now())
	}
	if a, refused := p.mayChangeLetters(r, s.Action); refused {
		return a
	}
	if err != nil {
		return trouble(http.StatusForbidden, "Nothing was changed", formtoken.ErrInvalid.Error())
	}
	reason := strings.TrimSpace(r.PostFormValue("reason"))
	if reason == "" {
		return askLetters(letterCountData{
			letterSelection: s, Hidden: hidden, Token: token,
			Problem: "Give a reason: it is logged with each letter's name.",
		})
	}
	letters := p.config.Letters(r.RemoteAddr)
	if letters == nil {
		return notOpen()
	}
	if !p.tokens.Use(token, until, time.Now()) {
		return trouble(http.StatusForbidden, "Nothing was changed", formtoken.ErrInvalid.Error())
	}
	done, err := letters.Change(r.Context(), LetterChange{
		LetterQuery: s.query(time.Now()), Discard: s.Action == actDiscard, Limit: s.Count, Reason: reason,
	})
	if err != nil {
		return trouble(statusOf(err), "Nothing was changed", err.Error())
	}
	data := lettersChangedData{
		letterSelection: s, LettersChanged: done, Reason: reason, Back: "/letters?" + s.Filter.Query(),
	}
	if done.More {
		data.Rest = "/letters/change?" + s.Query()
	}
	return answer{page: "letterchanged", title: "Done", data: data}
}
