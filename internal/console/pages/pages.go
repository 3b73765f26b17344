// Package pages serves the console: the state of the coordinator, lists of messages, the page of a message, and the
// forms to retry and discard messages.
//
// All pages are complete HTML and readable without JavaScript. All data of messages are text: they go through
// html/template and are never marked as safe, and the content security policy allows only our own script.
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

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/formtoken"
	"github.com/msghandler/msghandler/internal/console/history"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// Admin is the admin API of the pages. Its errors are fit for readers. An unknown message is halfmsg.ErrNotFound; any
// other refusal, except for an unavailable store, is a RefusedError.
type Admin = adminv1.AdminServiceClient

// RefusedError says why the admin API refused a request.
type RefusedError struct {
	// Status is the HTTP status.
	Status int
	// Text is for the reader.
	Text string
}

// Error implements error.
func (e RefusedError) Error() string { return e.Text }

// statusOf is the HTTP status of an error; by default the store is unavailable.
func statusOf(err error) int {
	var refused RefusedError
	if errors.As(err, &refused) {
		return refused.Status
	}
	return http.StatusServiceUnavailable
}

// Peers lists the counts of producers and exchanges.
type Peers interface {
	Producers() []peerstats.Producer
	Exchanges() []peerstats.Exchange
}

// Config configures Pages. The functions except Coordinators, Charts, Refused and Findings are required.
type Config struct {
	// Instance and Version name this process.
	Instance, Version string
	// ReadOnly removes all changes of messages.
	ReadOnly bool
	// HideBodies hides bodies and headers from everyone.
	HideBodies bool
	// Notice is shown on each page, such as a warning that everyone may do everything.
	Notice string
	// LogsIn says that people can log in and out.
	LogsIn bool
	// Refused gets each request that needs a higher role, and what it needs. Default: none.
	Refused func(r *http.Request, why string)
	// Admin returns the admin API for a caller at an address, or nil while the API is not open yet.
	Admin func(by string) Admin
	// Check runs the readiness checks.
	Check func(ctx context.Context) []Checked
	// Stats counts the messages.
	Stats func(ctx context.Context) ([]halfmsg.Stat, error)
	// Owners lists the lease holders.
	Owners func(ctx context.Context) (halfmsg.Owners, error)
	// Coordinators lists the coordinators on the same Redis. Default: none.
	Coordinators func() []*adminv1.Coordinator
	// Findings lists problems for operators, the worst first. Default: none.
	Findings func() []*adminv1.Finding
	// Since is when the present problem of a name and a remedy began; zero: unknown. Default: always unknown.
	Since func(name, remedy string) time.Time
	// Overdue is for how long the worst pending message is overdue for its verdict.
	Overdue func() time.Duration
	// Peers counts the producers and exchanges. Each call adds up the counts of all coordinators.
	Peers func() Peers
	// Charts returns what happened within a range, and why it may not be all. Default: nothing.
	Charts func(ctx context.Context, r history.Range) (history.Series, error)
	// Logger gets errors. Default slog.Default().
	Logger *slog.Logger
}

// Checked is the result of a readiness check.
type Checked struct {
	Name string `json:"name"`
	// Required says that the coordinator is not ready while the check fails.
	Required bool   `json:"required"`
	OK       bool   `json:"ok"`
	Error    string `json:"error,omitempty"`
	Note     string `json:"note,omitempty"`
	// Cause is what is behind the error.
	Cause *cause.Cause `json:"cause,omitempty"`
}

// Failed is the result of a check that failed.
func Failed(name string, part cause.Part, err error) Checked {
	of := cause.Of(part, err)
	return Checked{Name: name, Error: err.Error(), Cause: &of}
}

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// Pages serves the pages. Pages is safe for concurrent use.
type Pages struct {
	config Config
	tokens *formtoken.Signer
}

// New returns the pages.
func New(config Config) *Pages {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Coordinators == nil {
		config.Coordinators = func() []*adminv1.Coordinator { return nil }
	}
	if config.Charts == nil {
		config.Charts = func(_ context.Context, r history.Range) (history.Series, error) {
			return history.NewSeries(r, nil, time.Now()), nil
		}
	}
	if config.Findings == nil {
		config.Findings = func() []*adminv1.Finding { return nil }
	}
	if config.Since == nil {
		config.Since = func(string, string) time.Time { return time.Time{} }
	}
	if config.Refused == nil {
		config.Refused = func(*http.Request, string) {}
	}
	return &Pages{config: config, tokens: formtoken.New()}
}

// Register adds the pages to a mux. Each request must have the identity of its caller in its context.
func (p *Pages) Register(mux *http.ServeMux) {
	for pattern, page := range map[string]func(r *http.Request) answer{
		"GET /{$}":      p.overview,
		"/":             p.unknown,
		"GET /messages": p.messages,
		"GET /message":  p.message,
		"GET /audit":    p.audit,
		"GET /problems": p.ended,
		"GET /find":     p.find,

		"GET /letters":            p.letters,
		"GET /letter":             p.letter,
		"GET /letters/change":     p.countLetters,
		"POST /letters/change":    p.countLetters,
		"POST /letters/change/do": p.changeLetters,

		"GET /change":     p.count,
		"POST /change":    p.count,
		"POST /change/do": p.change,

		"GET /finished":         p.finished,
		"GET /finished/message": p.archived,
		"POST /replay":          p.countReplay,
		"POST /replay/do":       p.replay,
	} {
		mux.Handle(pattern, p.ForViewers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.write(w, r, page(r))
		})))
	}
}

// ForViewers refuses callers without a role.
func (p *Pages) ForViewers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a, refused := p.needs(r, access.Viewer, "looking at the console"); refused {
			p.write(w, r, a)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Static serves the style sheet, the script and the icon, which tell nothing and need no login.
func Static(w http.ResponseWriter, r *http.Request) {
	// The files change with the program only; an hour is short enough for an upgrade to be seen.
	w.Header().Set("Cache-Control", "max-age=3600")
	http.ServeFileFS(w, r, staticFiles, r.URL.Path) //nolint:gosec // an embedded file system has no way out
}

// answer is the result of a page's handler: a template with its data, or a redirect.
type answer struct {
	status   int
	page     string
	title    string
	data     any
	redirect string
}

// frame is the data around each page.
type frame struct {
	Instance, Version string
	ReadOnly          bool
	Notice            string
	// User is who has logged in; empty: no login.
	User string
	Role access.Role
	// CanLogIn and CanLogOut say which of the two is offered.
	CanLogIn, CanLogOut bool
	Page, Title         string
	// Refreshes says that the page renews itself.
	Refreshes bool
	Now       time.Time
	Data      any
}

// write answers with a page.
func (p *Pages) write(w http.ResponseWriter, r *http.Request, a answer) {
	if a.redirect != "" {
		http.Redirect(w, r, a.redirect, http.StatusSeeOther)
		return
	}
	var b bytes.Buffer
	if err := templates[a.page].Execute(&b, p.frame(r, a)); err != nil {
		p.config.Logger.Error("a page of the console cannot be made", "page", a.page, "cause", err)
		http.Error(w, "the page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(cmp.Or(a.status, http.StatusOK))
	_, _ = b.WriteTo(w) // fails only if the client is gone
}

func (p *Pages) frame(r *http.Request, a answer) frame {
	f := frame{
		Instance: p.config.Instance, Version: p.config.Version, ReadOnly: p.config.ReadOnly, Notice: p.config.Notice,
		Page: a.page, Title: a.title, Now: time.Now(), Data: a.data, Refreshes: refreshing[a.page],
	}
	switch identity := access.From(r.Context()); identity.Kind {
	case "":
	case access.Anonymous:
		f.CanLogIn = p.config.LogsIn
	default:
		f.User, f.Role = identity.Name, identity.Role
		f.CanLogOut = p.config.LogsIn && identity.Kind != access.Proxy
	}
	return f
}

// refreshing are the pages that renew themselves: those that change while their reader does nothing.
var refreshing = map[string]bool{"overview": true, "messages": true, "message": true, "audit": true, "ended": true}

// unknown is the answer to an address that the console does not have, or not for the method of the request.
func (p *Pages) unknown(r *http.Request) answer {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return trouble(http.StatusNotFound, "No such page", "The console takes no "+r.Method+" at "+r.URL.Path+
			". Nothing was changed; go back, and load the page before it again.")
	}
	return trouble(http.StatusNotFound, "No such page", "The console has no page "+r.URL.Path+
		". To find a message, write PRODUCER/ID or an id into the field above.")
}

// trouble is the error page.
func trouble(status int, title, text string) answer {
	return answer{status: status, page: "trouble", title: title, data: text}
}

// notOpen is the answer while the coordinator is still starting.
func notOpen() answer {
	return trouble(
		http.StatusServiceUnavailable,
		"Not ready yet",
		"The coordinator is still starting: it waits for Redis or for the broker. "+
			"The overview shows which of them is away.",
	)
}

// templates are the pages by name, each with the frame around it.
var templates = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, page := range []string{
		"overview", "messages", "message", "count", "changed", "trouble", "login", "audit", "found", "ended",
		"letters", "letter", "lettercount", "letterchanged",
		"finished", "archived", "replay", "replayed",
	} {
		all[page] = template.Must(template.New("frame.html").Funcs(words).
			ParseFS(templateFiles, "templates/frame.html", "templates/parts.html", "templates/"+page+".html"))
	}
	return all
}()
