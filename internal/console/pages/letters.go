package pages

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// letterFilter selects dead letters by the query of the page.
type letterFilter struct {
	Queue, Producer, Consumer, Exchange, Cause, Age string
	age                                             time.Duration
}

// readLetterFilter reads the address or the form of a page.
func readLetterFilter(r *http.Request) (f letterFilter, err error) {
	value := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	f = letterFilter{
		Queue: value("queue"), Producer: value("producer"), Consumer: value("consumer"), Exchange: value("exchange"),
		Cause: value("cause"), Age: value("age"),
	}
	if f.Age != "" {
		if f.age, err = time.ParseDuration(f.Age); err != nil || f.age < 0 {
			err = errAge
		}
	}
	return f, err
}

// values is the filter for an address.
func (f letterFilter) values() url.Values {
	values := url.Values{"queue": {f.Queue}}
	for key, value := range map[string]string{
		"producer": f.Producer, "consumer": f.Consumer, "exchange": f.Exchange, "cause": f.Cause, "age": f.Age,
	} {
		if value != "" {
			values.Set(key, value)
		}
	}
	return values
}

// Query is the filter as a part of an address.
func (f letterFilter) Query() string { return f.values().Encode() }

// Narrow says whether the filter has more than a queue.
func (f letterFilter) Narrow() bool {
	return f.Producer != "" || f.Consumer != "" || f.Exchange != "" || f.Cause != "" || f.Age != ""
}

// query is the filter for the port.
func (f letterFilter) query(names ...string) LetterQuery {
	return LetterQuery{Queue: f.Queue, LetterFilter: LetterFilter{
		Names: names, Producer: f.Producer, Consumer: f.Consumer, Exchange: f.Exchange, Cause: f.Cause, OlderThan: f.age,
	}}
}

// lettersData is the data of the queues, or of the list of one.
type lettersData struct {
	// Queues are nil for a list.
	Queues  []LetterQueue
	Filter  letterFilter
	Letters []Letter
	// Note says why the list ends early.
	Note, Next, First, Problem string
	CanReplay, CanDiscard      bool
	// ReplayAll and DiscardAll lead to the counts of all matching letters.
	ReplayAll, DiscardAll string
}

// letters lists the queues of dead letters, or the letters of one.
func (p *Pages) letters(r *http.Request) answer {
	letters := p.config.Letters(r.RemoteAddr)
	if letters == nil {
		return notOpen()
	}
	f, err := readLetterFilter(r)
	if f.Queue == "" {
		return answer{page: "letters", title: "Letters", data: lettersData{Queues: letters.Queues(r.Context())}}
	}
	data := lettersData{Filter: f, CanReplay: p.canChange(r, actReplay), CanDiscard: p.canChange(r, actDiscard)}
	a := answer{page: "letters", title: "Letters of " + f.Queue}
	if err != nil {
		a.status, data.Problem = http.StatusBadRequest, err.Error()
	} else if err := p.fillLetters(r, letters, &data); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	}
	if data.CanReplay {
		data.ReplayAll = "/letters/change?" + letterSelection{Action: actReplay, Filter: f}.Query()
	}
	if data.CanDiscard {
		data.DiscardAll = "/letters/change?" + letterSelection{Action: actDiscard, Filter: f}.Query()
	}
	a.data = data
	return a
}

// fillLetters reads the page's letters.
func (p *Pages) fillLetters(r *http.Request, letters Letters, data *lettersData) error {
	query := data.Filter.query()
	if after := r.FormValue("after"); after != "" {
		var err error
		if query.After, err = strconv.Atoi(after); err != nil || query.After < 0 {
			return RefusedError{http.StatusBadRequest, "The address names no page of a list."}
		}
		data.First = "/letters?" + data.Filter.Query()
	}
	page, err := letters.List(r.Context(), query)
	if err != nil {
		return err
	}
	data.Letters, data.Note = page.Letters, page.Note
	if page.Next > 0 {
		values := data.Filter.values()
		values.Set("after", strconv.Itoa(page.Next))
		data.Next = "/letters?" + values.Encode()
	}
	return nil
}

// letterData is the data of the page of a letter.
type letterData struct {
	Queue                 string
	Letter                Letter
	Content               content
	CanReplay, CanDiscard bool
}

func (p *Pages) letter(r *http.Request) answer {
	letters := p.config.Letters(r.RemoteAddr)
	if letters == nil {
		return notOpen()
	}
	queue, name := r.FormValue("queue"), r.FormValue("name")
	found, err := letters.Get(r.Context(), queue, name)
	if err != nil {
		return trouble(statusOf(err), "Letter "+name, err.Error())
	}
	data := letterData{
		Queue: queue, Letter: found, CanReplay: p.canChange(r, actReplay), CanDiscard: p.canChange(r, actDiscard),
		Content: p.content(r, letterAddress(queue, found), found.Headers, found.Body),
	}
	return answer{page: "letter", title: "Letter " + name, data: data}
}

// letterAddress is where the page of a letter is.
func letterAddress(queue string, l Letter) string {
	return "/letter?" + url.Values{"queue": {queue}, "name": {l.Name()}}.Encode()
}
