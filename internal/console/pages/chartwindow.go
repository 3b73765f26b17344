package pages

import (
	"errors"
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
	from, err := parseMoment(start, now)
	until, wrong := parseMoment(end, now)
	oldest := now.Add(-history.Kept)
	switch {
	case err != nil || wrong != nil:
		w.Wrong = errMoment.Error()
	case start == "":
		w.Wrong = "say from when on, such as 02:10"
	case end != "" && !until.After(from):
		w.Wrong = "the charts end after they begin: until is not after from"
	case from.After(now):
		w.Wrong = "the charts show what was: from is in the future"
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

var errMoment = errors.New("a time is written as 02:10 or 2026-11-29 02:10, or as 2h for two hours ago")

// parseMoment reads a time as people write it, the latest such time before now; an empty text is no time.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if clock, err := time.Parse("15:04", text); err == nil {
		day := now.UTC().Truncate(24 * time.Hour)
		at := day.Add(time.Duration(clock.Hour())*time.Hour + time.Duration(clock.Minute())*time.Minute)
		if at.After(now) {
			at = at.Add(-24 * time.Hour)
		}
		return at, nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02T15:04", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	if age, err := operate.ParseAge(text); err == nil {
		return now.Add(-age.AsDuration()), nil
	}
	return time.Time{}, errMoment
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
