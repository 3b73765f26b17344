// Package pages is what operators see in a browser: how the coordinator fares, lists of messages, one message, and the
// way to retry and discard them.
//
// All pages are made here, complete, and can be read without JavaScript. Whatever comes from a message is text: it goes
// through html/template and is never marked as safe, and the content security policy allows no script but ours.
package pages

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/console/seen"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Admin is the admin API as the pages use it. Its errors are fit for the reader; an unknown message is
// halfmsg.ErrNotFound, and what was refused for another reason than that the store is out of reach is a RefusedError.
type Admin interface {
	GetMessage(ctx context.Context, r *msghandlerv1.GetMessageRequest) (*msghandlerv1.GetMessageResponse, error)
	ListMessages(ctx context.Context, r *msghandlerv1.ListMessagesRequest) (*msghandlerv1.ListMessagesResponse, error)
	RetryMessages(ctx context.Context, r *msghandlerv1.RetryMessagesRequest) (*msghandlerv1.RetryMessagesResponse, error)
	DiscardMessages(ctx context.Context, r *msghandlerv1.DiscardMessagesRequest) (*msghandlerv1.DiscardMessagesResponse, error)
}

// RefusedError is why the admin API did not do what it was asked for.
type RefusedError struct {
	// Status is what HTTP calls it.
	Status int
	// Text is for the reader.
	Text string
}

// Error implements error.
func (e RefusedError) Error() string { return e.Text }

// statusOf is what HTTP calls an error: the store is out of reach, unless it says something else.
func statusOf(err error) int {
	var refused RefusedError
	if errors.As(err, &refused) {
		return refused.Status
	}
	return http.StatusServiceUnavailable
}

// Config says what the pages show. All but Hosts, Findings and Logger is required.
type Config struct {
	// Instance and Version name what runs.
	Instance, Version string
	// Hosts are names under which the pages are served, beside localhost and IP addresses.
	Hosts []string
	// ReadOnly leaves out whatever changes messages.
	ReadOnly bool
	// Admin gives the admin API on behalf of somebody at an address, or nil while it is not open yet.
	Admin func(by string) Admin
	// Check runs the readiness checks.
	Check func(ctx context.Context) []Checked
	// Stats counts the messages.
	Stats func(ctx context.Context) ([]halfmsg.Stat, error)
	// Owners tells who works on messages.
	Owners func(ctx context.Context) (halfmsg.Owners, error)
	// Findings tells what somebody should act on, the worst first. Default: nothing ever.
	Findings func() []*msghandlerv1.Finding
	// Undecided is for how long the worst pending message should have had its verdict.
	Undecided func() time.Duration
	// Board is what this instance saw of producers and exchanges, Ring how it fared lately.
	Board *seen.Board
	Ring  *history.Ring
	// Logger gets what goes wrong. Default slog.Default().
	Logger *slog.Logger
}

// Checked is what came of one readiness check.
type Checked struct {
	Name string `json:"name"`
	// Required says that the coordinator is not ready while the check fails.
	Required bool   `json:"required"`
	OK       bool   `json:"ok"`
	Error    string `json:"error,omitempty"`
	Note     string `json:"note,omitempty"`
}

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Pages serves the pages. It is safe for concurrent use.
type Pages struct {
	config Config
	seals  *seals
}

// New returns the pages.
func New(config Config) *Pages {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Findings == nil {
		config.Findings = func() []*msghandlerv1.Finding { return nil }
	}
	return &Pages{config: config, seals: newSeals()}
}

// Register adds the pages to a mux.
func (p *Pages) Register(mux *http.ServeMux) {
	own := http.NewCrossOriginProtection()
	for pattern, page := range map[string]func(r *http.Request) answer{
		"GET /{$}":        p.overview,
		"GET /messages":   p.messages,
		"GET /message":    p.message,
		"GET /find":       p.find,
		"GET /change":     p.count,
		"POST /change":    p.count,
		"POST /change/do": p.change,
	} {
		mux.Handle(pattern, p.atHome(own.Handler(p.serve(page))))
	}
	mux.Handle("GET /static/", p.atHome(http.HandlerFunc(static)))
}

// answer is what a page's handler comes to: a template and its data, or where to go instead.
type answer struct {
	status   int
	page     string
	title    string
	data     any
	redirect string
}

// frame is what every page shows around its own data.
type frame struct {
	Instance, Version string
	ReadOnly          bool
	Page, Title       string
	Now               time.Time
	Data              any
}

// serve makes a page of an answer.
func (p *Pages) serve(page func(r *http.Request) answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := page(r)
		if a.redirect != "" {
			http.Redirect(w, r, a.redirect, http.StatusSeeOther)
			return
		}
		var b bytes.Buffer
		f := frame{
			Instance: p.config.Instance, Version: p.config.Version, ReadOnly: p.config.ReadOnly, Page: a.page, Title: a.title,
			Now: time.Now(), Data: a.data,
		}
		if err := templates[a.page].Execute(&b, f); err != nil {
			p.config.Logger.Error("a page of the console cannot be made", "page", a.page, "error", err)
			http.Error(w, "the page cannot be made", http.StatusInternalServerError)
			return
		}
		guard(w.Header())
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(cmp.Or(a.status, http.StatusOK))
		_, _ = b.WriteTo(w) // only a reader that is gone makes this fail
	}
}

// guard says what a page may load and do: nothing but our own style, script and forms.
func guard(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}

func static(w http.ResponseWriter, r *http.Request) {
	guard(w.Header())
	// The files change with the program only; an hour is short enough for an upgrade to be seen.
	w.Header().Set("Cache-Control", "max-age=3600")
	http.ServeFileFS(w, r, staticFiles, r.URL.Path)
}

// trouble is the page that says why another cannot be shown.
func trouble(status int, title, text string) answer {
	return answer{status: status, page: "trouble", title: title, data: text}
}

// notOpen is the answer while the coordinator is still opening.
func notOpen() answer {
	return trouble(http.StatusServiceUnavailable, "Not open yet", "The coordinator is still opening: it waits for Redis or for the broker. "+
		"The overview says for which.")
}

// templates are the pages by name, each with the frame around it.
var templates = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, page := range []string{"overview", "messages", "message", "count", "changed", "trouble"} {
		all[page] = template.Must(template.New("frame.html").Funcs(words).
			ParseFS(templateFiles, "templates/frame.html", "templates/"+page+".html"))
	}
	return all
}()
