package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/operate"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	// maxMarks is how many problems and starts, and how many reloads, charts mark.
	maxMarks = 200
	// nearMarks is how close marks are, in percent of the width, that share a label.
	nearMarks = 3.5
	// marksTimeout bounds the wait for marks: the overview has more to tell than its charts.
	marksTimeout = 2 * time.Second
)

// chartMark is something that happened within the time of the charts.
type chartMark struct {
	// Kind is restart, circuit, reload or problem.
	Kind string
	// From and Until are when it began and ended. They are equal for a moment, and Until is zero where it lasts.
	From, Until time.Time
	Text        string
	// Place and Wide are where it is drawn, in percent of the width.
	Place, Wide float64
}

// marksData are the marks of all charts of a page, the latest first.
type marksData struct {
	Marks []chartMark
	// Labels stand above the charts.
	Labels []markLabel
	// Cut says that there are more than the marks, and Problem why not all are known.
	Cut     bool
	Problem string
}

// markLabel names one or several marks close to each other.
type markLabel struct {
	Place float64
	Text  string
}

// marks reads what happened within the time of a series.
func (p *Pages) marks(r *http.Request, s history.Series) (data marksData) {
	admin := p.config.Admin(r.RemoteAddr)
	if admin == nil {
		return data
	}
	ctx, cancel := context.WithTimeout(r.Context(), marksTimeout)
	defer cancel()
	from, until := s.TimeOf(0), s.TimeOf(0).Add(s.Span())
	found, err := admin.ListProblems(ctx, &adminv1.ListProblemsRequest{
		Since: timestamppb.New(from), Until: timestamppb.New(until), PageSize: maxMarks,
	})
	if err != nil {
		data.Problem = err.Error()
	}
	for _, f := range found.GetProblems() {
		if f.GetStartTime() != nil {
			data.Marks = append(data.Marks, markOf(f))
		}
	}
	data.Cut = found.GetMore()
	for _, result := range reloadResults {
		reloads, err := admin.ListAudit(ctx, &adminv1.ListAuditRequest{
			ActionContains: operate.Word(adminv1.AuditAction_AUDIT_ACTION_RELOAD), Result: result, PageSize: maxMarks,
			MaxAge: durationpb.New(max(time.Second, time.Since(from))),
		})
		if err != nil {
			data.Problem = err.Error()
		}
		for _, record := range reloads.GetRecords() {
			at := timeOf(record.GetTime())
			if record.GetAction() == adminv1.AuditAction_AUDIT_ACTION_RELOAD && record.GetResult() == result &&
				!at.Before(from) && at.Before(until) {
				data.Marks = append(data.Marks, chartMark{Kind: "reload", From: at, Until: at, Text: reloadText(record)})
			}
		}
		data.Cut = data.Cut || reloads.GetNextPageToken() != ""
	}
	slices.SortStableFunc(data.Marks, func(a, b chartMark) int { return b.From.Compare(a.From) })
	for i := range data.Marks {
		m := &data.Marks[i]
		m.Place = s.PlaceOf(m.From)
		m.Wide = s.PlaceOf(laterOf(m.Until, m.From)) - m.Place
		if m.Until.IsZero() {
			m.Wide = 100 - m.Place
		}
	}
	data.Labels = labelsOf(data.Marks)
	return data
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// reloadResults are the results of reloads. Without a result the trail would read the refusals of strangers too, which
// may be thousands.
var reloadResults = []adminv1.AuditResult{
	adminv1.AuditResult_AUDIT_RESULT_DONE, adminv1.AuditResult_AUDIT_RESULT_FAILED,
}

// reloadText says what came of a reload, and where.
func reloadText(r *adminv1.AuditRecord) string {
	text := fmt.Sprintf("configuration read again at %s: %d %s", cmp.Or(r.GetInstance(), "a coordinator"), r.GetCount(),
		thingsOf(r))
	if r.GetResult() == adminv1.AuditResult_AUDIT_RESULT_FAILED {
		return "configuration refused at " + cmp.Or(r.GetInstance(), "a coordinator") + ": " + r.GetCause()
	}
	return text
}

// markOf is the mark of a problem, or of a start or an end of a coordinator.
func markOf(f *adminv1.Finding) chartMark {
	m := chartMark{Kind: "problem", From: timeOf(f.GetStartTime()), Until: timeOf(f.GetEndTime()), Text: f.GetWhat()}
	name, where := f.GetName(), f.GetCoordinators()
	if len(where) > 0 && !strings.Contains(m.Text, where[0]) {
		m.Text += ", at " + strings.Join(where[:min(len(where), 3)], ", ")
	}
	begins := func(with ...string) bool {
		return slices.ContainsFunc(with, func(w string) bool { return strings.HasPrefix(name, w) })
	}
	switch {
	case begins("coordinator-started", "coordinator-stopped", "coordinators-unclean-end"):
		m.Kind = "restart"
	case begins("producer-", "refused-", "queue-stalled", "messages-refused"):
		m.Kind = "circuit"
	}
	return m
}

// labelsOf are the labels of the marks, each once for those that are close.
func labelsOf(marks []chartMark) (labels []markLabel) {
	var near []chartMark
	end := func() {
		if len(near) == 0 {
			return
		}
		text := near[0].Letter()
		for _, m := range near[1:] {
			if !strings.Contains(text, m.Letter()) {
				text += m.Letter()
			}
		}
		if len(near) > 1 {
			text += fmt.Sprint(len(near))
		}
		labels, near = append(labels, markLabel{near[0].Place, text}), nil
	}
	for _, m := range slices.Backward(marks) {
		if len(near) > 0 && m.Place-near[0].Place > nearMarks {
			end()
		}
		near = append(near, m)
	}
	end()
	return labels
}

// Letter stands for the kind of a mark.
func (m chartMark) Letter() string { return strings.ToUpper(markLetters[m.Kind]) }

var markLetters = map[string]string{"restart": "s", "circuit": "c", "reload": "r", "problem": "p"}

// X and Width are the place in the box of the lines.
func (m chartMark) X() float64     { return m.Place * history.Width / 100 }
func (m chartMark) Width() float64 { return m.Wide * history.Width / 100 }

// Summary counts the marks by kind.
func (d marksData) Summary() string {
	counts := map[string]int{}
	for _, m := range d.Marks {
		counts[m.Kind]++
	}
	var parts []string
	for _, kind := range []struct{ name, one, many string }{
		{"restart", "start or end of a coordinator (S)", "starts and ends of coordinators (S)"},
		{"circuit", "failing producer or exchange (C)", "failing producers and exchanges (C)"},
		{"reload", "reload (R)", "reloads (R)"},
		{"problem", "other problem (P)", "other problems (P)"},
	} {
		switch n := counts[kind.name]; {
		case n == 1:
			parts = append(parts, "1 "+kind.one)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.many))
		}
	}
	if d.Cut {
		parts = append(parts, "and earlier ones that are not drawn")
	}
	return strings.Join(parts, ", ")
}
