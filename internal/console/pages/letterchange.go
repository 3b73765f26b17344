package pages

import (
	"errors"
	"net/http"
	"strings"
	"time"
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
func (s letterSelection) text() string { return s.encode(s.Query()) }

// parseLetterSelection parses the result of text.
func parseLetterSelection(text string) (letterSelection, error) {
	tally, r, badTally := decodeTally(text)
	s, err := readLetterSelection(r)
	s.tally = tally
	return s, errors.Join(err, badTally)
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
	form
	Destinations []LetterDestination
}

// countLetters shows how many letters a replay or a discard would change, and changes nothing.
func (p *Pages) countLetters(r *http.Request) answer {
	s, err := readLetterSelection(r)
	if err != nil {
		return trouble(http.StatusBadRequest, "Invalid selection", err.Error())
	}
	if a, refused := p.mayChange(r, s.Action, "letters"); refused {
		return a
	}
	letters := p.config.Letters(r.RemoteAddr)
	if letters == nil {
		return notOpen()
	}
	s.Counted = time.Now()
	change := LetterChange{LetterQuery: s.query(s.Counted), Discard: s.Action == actDiscard}
	found, err := letters.Count(r.Context(), change)
	if err != nil {
		return trouble(statusOf(err), "The letters cannot be counted", err.Error())
	}
	s.Count, s.AtLeast = int64(found.Count), found.AtLeast
	return askLetters(letterCountData{s, p.newForm(r, s.text()), found.Destinations})
}

// askLetters shows the form.
func askLetters(data letterCountData) answer {
	data.Verb, data.Target, data.Back = verbs[data.Action], "/letters/change/do", "/letters?"+data.Filter.Query()
	data.Example = "Fixed in release 42; ticket 4711"
	return data.shown("lettercount", data)
}

// lettersChangedData is the result of a change.
type lettersChangedData struct {
	letterSelection
	LettersChanged
	Reason, Back, Rest string
}

// changeLetters does what a form asks for that countLetters has made.
func (p *Pages) changeLetters(r *http.Request) answer {
	f := readForm(r)
	s, err := parseLetterSelection(f.Hidden)
	if a, refused := p.mayChange(r, s.Action, "letters"); refused {
		return a
	}
	if err != nil || !p.valid(r, f, s.Counted) {
		return invalidForm()
	}
	if f.Reason == "" {
		return askLetters(letterCountData{letterSelection: s, form: f.withoutReason("letter")})
	}
	letters := p.config.Letters(r.RemoteAddr)
	if letters == nil {
		return notOpen()
	}
	if !p.use(f, s.Counted) {
		return invalidForm()
	}
	done, err := letters.Change(r.Context(), LetterChange{
		LetterQuery: s.query(time.Now()), Discard: s.Action == actDiscard, Limit: int(s.Count), Reason: f.Reason,
	})
	if err != nil {
		return trouble(statusOf(err), "Nothing was changed", err.Error())
	}
	data := lettersChangedData{
		letterSelection: s, LettersChanged: done, Reason: f.Reason, Back: "/letters?" + s.Filter.Query(),
	}
	if done.More {
		data.Rest = "/letters/change?" + s.Query()
	}
	return answer{page: "letterchanged", title: "Done", data: data}
}
