package pages

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// letterFilter selects dead letters by the query of the page.
type letterFilter struct {
	Queue string
	operate.DeadLetterText
	// RoutingKey and Like select a group: the letters with the cause of a text.
	RoutingKey, Like string
}

// readLetterFilter reads the address or the form of a page.
func readLetterFilter(r *http.Request) (letterFilter, error) {
	value := func(name string) string { return strings.TrimSpace(r.FormValue(name)) }
	f := letterFilter{Queue: value("queue"), RoutingKey: value("key"), Like: value("like")}
	f.DeadLetterText = operate.DeadLetterText{
		Producer: value("producer"), Consumer: value("consumer"), Exchange: value("exchange"), Cause: value("cause"),
		OlderThan: value("age"),
	}
	_, err := f.Filter()
	return f, howWritten(err)
}

// values is the filter for an address.
func (f letterFilter) values() url.Values {
	return addressed(url.Values{"queue": {f.Queue}}, map[string]string{
		"producer": f.Producer, "consumer": f.Consumer, "exchange": f.Exchange, "cause": f.Cause, "age": f.OlderThan,
		"key": f.RoutingKey, "like": f.Like,
	})
}

// Query is the filter as a part of an address.
func (f letterFilter) Query() string { return f.values().Encode() }

// Narrow says whether the filter has more than a queue.
func (f letterFilter) Narrow() bool { return f != letterFilter{Queue: f.Queue} }

// request is the filter for the API.
func (f letterFilter) request() *adminv1.DeadLetterFilter {
	filter, _ := f.Filter() // readLetterFilter says why
	if filter != nil {
		filter.RoutingKey, filter.Cause = f.RoutingKey, f.Like
	}
	return filter
}

// letter is a dead letter, with since when it waits.
type letter struct {
	*adminv1.DeadLetter
	Since time.Time
}

func newLetter(l *adminv1.DeadLetter) letter { return letter{l, timeOf(l.GetSinceTime())} }

// Name is PRODUCER/ID, or PRODUCER/ for a letter without an id.
func (l letter) Name() string { return l.GetProducer() + "/" + l.GetMessage().GetId() }

// letterQueue is a queue of dead letters. Known says that the broker has counted the letters.
type letterQueue struct {
	*adminv1.DeadLetterQueue
	Known  bool
	Oldest time.Time
}

// lettersData is the data of the queues, or of the list of one.
type lettersData struct {
	// Queues are nil for a list.
	Queues  []letterQueue
	Filter  letterFilter
	Letters []letter
	// Groups are above the first page.
	Groups *letterGroups
	// Note says why the list ends early.
	Note, Next, First, Problem string
	CanReplay, CanDiscard      bool
	// ReplayAll and DiscardAll lead to the counts of all matching letters.
	ReplayAll, DiscardAll string
}

// letters lists the queues of dead letters, or the letters of one.
func (p *Pages) letters(r *http.Request) answer {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	f, err := readLetterFilter(r)
	if f.Queue == "" {
		return letterQueues(r, admin)
	}
	data := lettersData{Filter: f, CanReplay: p.canChange(r, actReplay), CanDiscard: p.canChange(r, actDiscard)}
	a := answer{page: "letters", title: "Dead letters of " + f.Queue}
	if err != nil {
		a.status, data.Problem = http.StatusBadRequest, err.Error()
	} else if err := fillLetters(r, admin, &data); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	} else if data.First == "" && len(data.Letters) > 0 {
		data.Groups = groupLetters(r, admin, &data)
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

// letterQueues lists the queues.
func letterQueues(r *http.Request, admin Admin) answer {
	found, err := admin.ListDeadLetterQueues(r.Context(), &adminv1.ListDeadLetterQueuesRequest{})
	if err != nil {
		return trouble(statusOf(err), "Dead letters", err.Error())
	}
	var data lettersData
	for _, q := range found.GetQueues() {
		data.Queues = append(data.Queues, letterQueue{q, q.Count != nil, timeOf(q.GetOldestTime())})
	}
	return answer{page: "letters", title: "Dead letters", data: data}
}

// fillLetters reads the page's letters.
func fillLetters(r *http.Request, admin Admin, data *lettersData) error {
	token := r.FormValue("after")
	if token != "" {
		data.First = "/letters?" + data.Filter.Query()
	}
	page, err := admin.ListDeadLetters(r.Context(), &adminv1.ListDeadLettersRequest{
		Queue: data.Filter.Queue, Filter: data.Filter.request(), PageToken: token,
	})
	if err != nil {
		return err
	}
	for _, l := range page.GetLetters() {
		data.Letters = append(data.Letters, newLetter(l))
	}
	data.Note = page.GetNote()
	if page.GetNextPageToken() != "" {
		values := data.Filter.values()
		values.Set("after", page.GetNextPageToken())
		data.Next = "/letters?" + values.Encode()
	}
	return nil
}

// letterData is the data of the page of a letter.
type letterData struct {
	Queue                 string
	Letter                letter
	Content               content
	CanReplay, CanDiscard bool
}

func (p *Pages) letter(r *http.Request) answer {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return notOpen()
	}
	queue, name := r.FormValue("queue"), r.FormValue("name")
	producer, id, _ := strings.Cut(name, "/")
	found, err := admin.GetDeadLetter(r.Context(), &adminv1.GetDeadLetterRequest{
		Queue: queue, Producer: producer, Id: id,
	})
	if err != nil {
		return trouble(statusOf(err), "Dead letter "+name, err.Error())
	}
	l := newLetter(found.GetLetter())
	data := letterData{
		Queue: queue, Letter: l, CanReplay: p.canChange(r, actReplay), CanDiscard: p.canChange(r, actDiscard),
		Content: p.content(r, letterAddress(queue, l), l.GetMessage().GetHeaders(), l.GetMessage().GetBody()),
	}
	return answer{page: "letter", title: "Dead letter " + name, data: data}
}

// letterAddress is where the page of a letter is.
func letterAddress(queue string, l letter) string {
	return "/letter?" + url.Values{"queue": {queue}, "name": {l.Name()}}.Encode()
}
