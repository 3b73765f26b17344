// Package login says who uses the console: by a session, by a bearer token, or by the word of a trusted proxy. It
// serves the login and the logout.
//
// A session is a sealed cookie. Only logouts are stored: one ends all sessions of the person that began before. The
// cookie of a token holds the token's hash, so a session ends when the token is revoked. The cookie of a JSON Web Token
// holds what the issuer said at the login. The rules of the configuration are applied at each request.
package login

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Authenticator makes complete identities; access.Authenticator is the one.
type Authenticator interface {
	IdentifyToken(ctx context.Context, token string) (access.Identity, error)
	Complete(identity access.Identity) access.Identity
}

// Tokens are the tokens whose owners may log in.
type Tokens interface {
	access.Source
	// AuthenticateSum is Authenticate by the hash of a token.
	AuthenticateSum(sum [sha256.Size]byte) (access.Identity, error)
}

// Logouts keeps when people last logged out, in whole milliseconds, for as long as a session may last.
type Logouts interface {
	// NoteLogout keeps the time of a logout, unless a later one is kept.
	NoteLogout(ctx context.Context, who string, at time.Time) error
	// LastLogout is when a person last logged out; the zero time where nothing is kept.
	LastLogout(ctx context.Context, who string) (time.Time, error)
}

// Config configures a Gate. All fields except Authenticator and Show are optional.
type Config struct {
	// Authenticator makes the identities. Required.
	Authenticator Authenticator
	// Anonymous is everyone who shows nothing. Without a role they must log in.
	Anonymous access.Identity
	// Tokens and JWTs are taken by the form, and as bearer tokens.
	Tokens Tokens
	JWTs   access.Source
	// Issuer logs people in.
	Issuer *Issuer
	// Proxy names the users who come through it.
	Proxy *Proxy
	// PublicURL is where browsers open the console. Default: at the name that they used.
	PublicURL string
	// Secret seals the sessions. Sessions of another secret end. Default: random.
	Secret func() string
	// Installation are the texts that tell this installation, its issuer and client from others with the same Secret:
	// their sessions do not hold here.
	Installation []string
	// InstallationID tells this installation from others with the same texts. While the ID is unknown, InstallationID
	// returns an empty text, and only the sessions of this process hold. Default: the texts tell enough.
	InstallationID func() string
	// Now is the clock of this coordinator, which tells when sessions begin and end. Default time.Now.
	Now func() time.Time
	// Age is how long a session lasts. Default 8 h.
	Age time.Duration
	// Show writes the page of the login. Required.
	Show func(w http.ResponseWriter, r *http.Request, view View)
	// Refused gets each refused proof: who came, and why the proof was refused. Default: none.
	Refused func(r *http.Request, why string)
	// Logouts are those of all coordinators. Default: a logout ends the session of the browser alone.
	Logouts Logouts
	// LoggedIn and LoggedOut get each begin and end of a session, and whose session it is. Default: none.
	LoggedIn, LoggedOut func(r *http.Request, who access.Identity)
	// Logger gets the errors of the issuer. Default slog.Default().
	Logger *slog.Logger
}

// View is the content of the page of the login.
type View struct {
	// Status is the HTTP status.
	Status int
	// Problem says why there is no session; empty: there is no problem.
	Problem string
	// Tokens says that the form for a token is shown. Issuer is the name of the issuer; empty: there is none.
	Tokens bool
	Issuer string
	// Next is the local address that the login leads to.
	Next string
}

// IssuerLink leads to the issuer.
func (v View) IssuerLink() string { return "/login/oidc?" + url.Values{"next": {v.Next}}.Encode() }

const (
	// defaultAge is how long a session lasts by default.
	defaultAge = 8 * time.Hour
	// loggedEvery is the least time between two lines about failed logins.
	loggedEvery = 10 * time.Second
)

// Gate finds out who sends a request. A Gate is safe for concurrent use.
type Gate struct {
	config Config
	// process seals cookies for this process alone, until the ID of the installation is known. installation seals them for
	// all processes of the installation that have the secret.
	process      sealer
	installation atomic.Pointer[secretSealer]
	// guesses are of tokens, and returns are from the issuer: guesses delay no login by the issuer.
	guesses, returns attempts
	// logged bounds the lines about failed logins.
	logged *loglimit.Limiter
}

// New returns a gate.
func New(config Config) *Gate {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	config.Age = cmp.Or(config.Age, defaultAge)
	if config.Now == nil {
		config.Now = time.Now
	}
	config.PublicURL = asBrowsersName(config.PublicURL)
	if config.Refused == nil {
		config.Refused = func(*http.Request, string) {}
	}
	if config.LoggedIn == nil {
		config.LoggedIn = func(*http.Request, access.Identity) {}
	}
	if config.LoggedOut == nil {
		config.LoggedOut = func(*http.Request, access.Identity) {}
	}
	if config.Secret == nil {
		secret := rand.Text() + rand.Text()
		config.Secret = func() string { return secret }
	}
	if config.InstallationID == nil {
		config.InstallationID = func() string { return "unnamed" }
	}
	return &Gate{
		config: config, process: newSealer([]byte(rand.Text()), nil),
		guesses: attempts{most: maxGuesses}, returns: attempts{most: maxReturns},
		logged: loglimit.New(loggedEvery),
	}
}

// asBrowsersName is the URL of a console without what browsers leave out: the default port and a path of "/".
func asBrowsersName(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return text
	}
	host := strings.ToLower(u.Host)
	return u.Scheme + "://" + strings.TrimSuffix(host, map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
}

// LogsIn says whether people can log in here.
func (g *Gate) LogsIn() bool { return g.takesTokens() || g.config.Issuer != nil }

func (g *Gate) takesTokens() bool { return g.config.Tokens != nil || g.config.JWTs != nil }

// Register adds the login to a mux, for everyone.
func (g *Gate) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", g.page)
	mux.HandleFunc("POST /login", g.byToken)
	mux.HandleFunc("POST /logout", g.logout)
	if g.config.Issuer != nil {
		mux.HandleFunc("GET /login/oidc", g.toIssuer)
		mux.HandleFunc("GET "+callbackPath, g.fromIssuer)
	}
}

// Require passes the requests of callers with a role on, each with its identity. All others are told how to log in.
func (g *Gate) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		identity, err := g.identify(w, r)
		switch {
		case err != nil:
			g.refuse(w, r, err)
		case identity.Role == access.NoRole && g.isStranger(identity):
			g.challenge(w, r)
		default:
			next.ServeHTTP(w, r.WithContext(access.With(r.Context(), identity)))
		}
	})
}

// HasRole says whether the sender of a request has any role.
func (g *Gate) HasRole(w http.ResponseWriter, r *http.Request) bool {
	identity, err := g.identify(w, r)
	return err == nil && identity.Role > access.NoRole
}

// isStranger says whether a caller has shown nothing. Others without a role learn that they have none.
func (g *Gate) isStranger(identity access.Identity) bool {
	return identity.Kind == "" || identity.Kind == access.Anonymous
}

// identify finds out who sends a request. The error is that of a proof that does not hold, except for a session's.
func (g *Gate) identify(w http.ResponseWriter, r *http.Request) (access.Identity, error) {
	if g.config.Proxy != nil {
		identity, named, err := g.config.Proxy.identify(r)
		if named || err != nil {
			return g.config.Authenticator.Complete(identity), err
		}
	}
	if token, shown := bearer(r); shown && g.takesTokens() {
		return g.config.Authenticator.IdentifyToken(r.Context(), token)
	}
	if identity, _, ok := g.session(w, r); ok {
		return identity, nil
	}
	return g.config.Anonymous, nil
}

// bearer is the bearer token of a request. Other schemes are a proxy's own matter.
func bearer(r *http.Request) (token string, shown bool) {
	const scheme = "bearer "
	value := r.Header.Get("Authorization")
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", false
	}
	return strings.TrimSpace(value[len(scheme):]), true
}

// refuse answers a proof that does not hold. The answer is the same for each reason, so that it tells no stranger which
// names exist. A valid token from the same address is never held up by others' guesses.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, access.ErrUnavailable) {
		w.Header().Set("Retry-After", fmt.Sprint(int(retryAfter.Seconds())))
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return
	}
	g.config.Refused(r, err.Error())
	if !g.guesses.begin(addressOf(r), time.Now()) {
		tooMany(w)
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	http.Error(w, "The credentials are not valid. The log of the coordinator says why.", http.StatusUnauthorized)
}

func tooMany(w http.ResponseWriter) {
	w.Header().Set("Retry-After", fmt.Sprint(int(attemptsWindow.Seconds())))
	http.Error(w, tooManyAttempts, http.StatusTooManyRequests)
}

const (
	// unavailable is the answer while the issuer cannot say whether a proof holds.
	unavailable = "The issuer of the credentials does not answer. Try again."
	retryAfter  = 5 * time.Second
)

const tooManyAttempts = "Too many attempts from this address. Wait a minute, then try again."

// challenge leads a browser to the login, and tells a program to show a token.
func (g *Gate) challenge(w http.ResponseWriter, r *http.Request) {
	browser := strings.Contains(r.Header.Get("Accept"), "text/html")
	switch {
	case browser && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		to := url.URL{Path: "/login"}
		if next := r.URL.RequestURI(); next != "/" {
			to.RawQuery = url.Values{"next": {next}}.Encode()
		}
		http.Redirect(w, r, to.String(), http.StatusSeeOther)
	case browser:
		g.show(w, r, View{
			Status: http.StatusUnauthorized, Next: "/",
			Problem: "Nothing was changed: your login has ended. Log in, and count again.",
		})
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "Show who you are: log in at /login with a browser, or send authorization: Bearer TOKEN.",
			http.StatusUnauthorized)
	}
}

// page shows the login.
func (g *Gate) page(w http.ResponseWriter, r *http.Request) {
	g.show(w, r, View{Status: http.StatusOK, Next: localAddress(r.FormValue("next"))})
}

func (g *Gate) show(w http.ResponseWriter, r *http.Request, view View) {
	view.Tokens = g.takesTokens()
	if g.config.Issuer != nil {
		view.Issuer = g.config.Issuer.Name
	}
	g.config.Show(w, r, view)
}

// localAddress is the address that a login leads to: a page of this console, and never another site.
func localAddress(next string) string {
	const longest = 1000
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil || len(next) > longest ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsFunc(next, notAddressRune) ||
		u.Path == "/login" || strings.HasPrefix(u.Path, "/login/") || u.Path == "/logout" {
		return "/"
	}
	return next
}

// notAddressRune tells what browsers drop from an address, or take for a slash.
func notAddressRune(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }
