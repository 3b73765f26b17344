package pages

import (
	"net/http"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// endedData is the data of the page of problems.
type endedData struct {
	// Since and Until are when the shown time began and ended, as people write ages and times.
	Since, Until string
	Problems     []endedProblem
	// More says that there are earlier problems than these.
	More    bool
	Problem string
}

// endedProblem is a problem that lasts or has ended, or an event.
type endedProblem struct {
	*adminv1.Finding
	// Do is the remedy.
	Do string
	// Lasted says for how long, and how the figure has changed; empty for an event.
	Lasted string
	// Page explains the problem.
	Page string
}

// Tone is the style-sheet class of the problem.
func (p endedProblem) Tone() string {
	switch p.GetSeverity() {
	case adminv1.Severity_SEVERITY_TROUBLE:
		return "bad"
	case adminv1.Severity_SEVERITY_WARNING:
		return "warn"
	case adminv1.Severity_SEVERITY_UNSPECIFIED:
	}
	return "past"
}

// defaultSince is the shown time when the address names none.
const defaultSince = "24h"

// ended lists what was wrong within a time: problems that last and problems that have ended.
func (p *Pages) ended(r *http.Request) answer {
	data := endedData{Since: strings.TrimSpace(r.FormValue("since")), Until: strings.TrimSpace(r.FormValue("until"))}
	if data.Since == "" {
		data.Since = defaultSince
	}
	a := answer{page: "ended", title: "Problems"}
	if err := p.fillEnded(r, &data, time.Now()); err != nil {
		a.status, data.Problem = statusOf(err), err.Error()
	}
	a.data = data
	return a
}

// fillEnded reads the problems of the page.
func (p *Pages) fillEnded(r *http.Request, data *endedData, now time.Time) error {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return errNotOpen
	}
	request := &adminv1.ListProblemsRequest{PageSize: pageSize}
	var err error
	if request.Since, request.Until, err = operate.ParseSpan(data.Since, data.Until, now); err != nil {
		return RefusedError{Status: http.StatusBadRequest, Text: howWritten(err).Error()}
	}
	response, err := admin.ListProblems(r.Context(), request)
	if err != nil {
		return err
	}
	data.More = response.GetMore()
	for _, f := range response.GetProblems() {
		data.Problems = append(data.Problems, endedProblem{
			f, operate.Remedy(f), operate.Lasting(f, now), cause.Page(f.GetName()),
		})
	}
	return nil
}

// date adds to the problems of the overview when each began, and how its figure has changed.
func (d *overviewData) date(since func(name, remedy string) time.Time) {
	for i := range d.Problems {
		p := &d.Problems[i]
		p.Since = since(p.Name, p.Do)
		for _, f := range d.Findings {
			if f.GetName() != p.Name || f.GetRemedy() != p.Do {
				continue
			}
			p.Growth = operate.Growth(f)
			if f.GetStartTime() != nil {
				p.Since = f.GetStartTime().AsTime()
			}
			break
		}
	}
}
