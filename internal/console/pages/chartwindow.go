package pages

import (
	"net/http"
	"net/url"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/operate"
)

// chartWindow is the time that the charts of a request show, and its form.
type chartWindow struct {
	history.Window
	// Tabs lead to the presets.
	Tabs []windowTab
	// Start and End are the ends of a free window as its form has them; empty: a preset.
	Start, End string
	// Wrong says why a free window is none.
	Wrong string
}

// windowTab leads to the same charts with a preset.
type windowTab struct {
	Text, Link string
	Current    bool
}

// readWindow reads the address of a page.
func readWindow(r *http.Request, now time.Time) chartWindow {
	w := chartWindow{Window: history.PresetOf(r.FormValue("range"))}
	start, end := r.FormValue("from"), r.FormValue("until")
	if start == "" && end == "" {
		return w
	}
	w.Start, w.End = start, end
	from, until, err := operate.ParseRange(start, end, now)
	oldest := now.Add(-history.Kept)
	switch {
	case err != nil:
		w.Wrong = howWritten(err).Error()
	case start == "":
		w.Wrong = "say since when, such as 02:10"
	case end != "" && !until.After(oldest):
		w.Wrong = "nothing is kept of what is older than a week"
	default:
		if end == "" {
			until = now
		}
		if from.Before(oldest) {
			from = oldest
		}
		w.Window = history.Between(from, until, now)
		w.Start, w.End = minute(from.UTC()), minute(until.UTC())
	}
	return w
}

// Title says what the charts show.
func (w chartWindow) Title() string {
	if w.From.IsZero() {
		return "The last " + w.Words
	}
	return "From " + w.Start + " to " + w.End
}

// link is an address of charts in the window, of what the query names.
func (w chartWindow) link(query url.Values) string {
	if w.From.IsZero() {
		query.Set("range", w.Name)
	} else {
		query.Set("from", w.Start)
		query.Set("until", w.End)
	}
	return "/?" + query.Encode() + "#charts"
}

// tabsOf are the presets for the charts of what a query names.
func (w chartWindow) tabsOf(query url.Values) (tabs []windowTab) {
	for _, preset := range history.Presets {
		text := "1 " + preset.Words
		if preset.Words[0] <= '9' {
			text = preset.Words
		}
		of := chartWindow{Window: preset}
		tabs = append(tabs, windowTab{text, of.link(query), w.From.IsZero() && preset.Name == w.Name})
	}
	return tabs
}
