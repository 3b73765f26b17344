package console

import (
	"bytes"
	_ "embed" // the page's template
	"html/template"
	"net/http"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Parse(pageSource))

// view is what the page shows.
type view struct {
	Instance, Version string
	Readiness         readiness
	States            []stateView
	Error             string
}

// stateView is one line of the table of states.
type stateView struct {
	State  halfmsg.State
	Count  int64
	Oldest string
}

func (c *Console) page(w http.ResponseWriter, r *http.Request) {
	v := view{Instance: c.config.Instance, Version: c.config.Version, Readiness: c.check(r.Context())}
	current, err := c.stats.get(r.Context())
	if err != nil {
		v.Error = "The messages cannot be counted: " + err.Error()
	}
	for _, stat := range current {
		line := stateView{State: stat.State, Count: stat.Count, Oldest: "-"}
		if stat.Count > 0 {
			line.Oldest = age(stat, time.Now()).Round(time.Second).String()
		}
		v.States = append(v.States, line)
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		c.config.Logger.Error("the console's page cannot be made", "error", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	_, _ = b.WriteTo(w)
}
