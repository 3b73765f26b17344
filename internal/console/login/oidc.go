package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/oauth2"

	"github.com/msghandler/msghandler/internal/access"
)

// Issuer logs people in by the authorization code flow of OpenID Connect, with PKCE.
type Issuer struct {
	Provider
	// Name is for the button, such as the host of the issuer.
	Name string
	// ClientID is our name at the issuer.
	ClientID string
	// ClientSecret is our password of now; nil: we are a public client.
	ClientSecret func() string
	// Scopes are asked for.
	Scopes []string
}

// Provider is what an issuer answers.
type Provider interface {
	// Endpoint is where the issuer is asked. It fails while the issuer is unavailable.
	Endpoint() (oauth2.Endpoint, error)
	// ClientContext returns a context for calls of package oauth2 to the issuer.
	ClientContext(ctx context.Context) context.Context
	// AuthenticateLogin is the identity that an ID token proves: one for our client, from the login with this nonce.
	AuthenticateLogin(ctx context.Context, idToken, nonce string) (access.Identity, error)
}

const (
	// callbackPath is where the issuer sends the browser back to.
	callbackPath = "/login/callback"
	// signInTime is how long people may take at the issuer.
	signInTime = 10 * time.Minute
	// issuerTime bounds the calls to the issuer of a request.
	issuerTime = 10 * time.Second
)

// atPublicName marks a browser that was sent to the public name. It is not sent there again: a proxy in front of the
// console may replace the name in its requests.
const atPublicName = "public"

// signIn is what the browser keeps while it is at the issuer.
type signIn struct {
	// State ties the issuer's answer to this browser, Nonce the ID token, and Verifier the code.
	State, Nonce, Verifier string
	Next                   string
	Until                  time.Time
}

// toIssuer sends a browser to the issuer.
func (g *Gate) toIssuer(w http.ResponseWriter, r *http.Request) {
	next := localAddress(r.FormValue("next"))
	if g.config.PublicURL != "" && !g.isPublic(r) && r.FormValue(atPublicName) == "" {
		// The issuer sends the browser back to the public name, and only there it has the cookie of the login.
		http.Redirect(w, r, g.config.PublicURL+"/login/oidc?"+url.Values{"next": {next}, atPublicName: {"1"}}.Encode(),
			http.StatusSeeOther)
		return
	}
	client, err := g.client(r)
	if err != nil {
		g.issuerFailed(w, r, next, err)
		return
	}
	s := signIn{
		State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Next: next,
		Until: time.Now().Add(signInTime),
	}
	if err := g.setCookie(w, r, signInCookie, s, signInTime); err != nil {
		g.issuerFailed(w, r, next, err)
		return
	}
	//nolint:gosec // the address is of the configured issuer
	http.Redirect(w, r, client.AuthCodeURL(s.State, oauth2.S256ChallengeOption(s.Verifier),
		oauth2.SetAuthURLParam("nonce", s.Nonce)), http.StatusSeeOther)
}

var (
	errNoSignIn = errors.New("the answer of the issuer belongs to no login of this browser, or came too late")
	errNoLogins = errors.New("the issuer has no addresses for logins")
	errNoToken  = errors.New("the issuer gave no ID token: add openid to http.oidc_scopes")
)

// fromIssuer begins a session for the person that the issuer has sent back.
func (g *Gate) fromIssuer(w http.ResponseWriter, r *http.Request) {
	var s signIn
	known := g.cookie(r, signInCookie, &s)
	g.dropCookie(w, r, signInCookie)
	state := r.FormValue("state")
	if !known || !time.Now().Before(s.Until) || subtle.ConstantTimeCompare([]byte(state), []byte(s.State)) != 1 {
		g.config.Refused(r, errNoSignIn.Error())
		g.show(w, r, View{
			Status: http.StatusBadRequest, Next: "/", Problem: "This login was not begun in this browser, or took too long. " +
				"Begin again.",
		})
		return
	}
	from := addressOf(r)
	if !g.returns.begin(from, time.Now()) {
		g.show(w, r, View{Status: http.StatusTooManyRequests, Next: s.Next, Problem: tooManyAttempts})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), issuerTime)
	defer cancel()
	identity, err := g.exchange(ctx, r, s)
	if !refusesCode(err) {
		g.returns.takeBack(from)
	}
	if err != nil {
		g.config.Refused(r, err.Error())
		g.issuerFailed(w, r, s.Next, err)
		return
	}
	// The ID token is for the login alone, and may end in minutes: the session has its own end.
	until := time.Now().Add(g.config.Age)
	identity.Expires = until
	g.begin(w, r, proof{Identity: &identity, Until: until}, s.Next)
}

// exchange redeems the code of the issuer for the identity.
func (g *Gate) exchange(ctx context.Context, r *http.Request, s signIn) (access.Identity, error) {
	if refused := r.FormValue("error"); refused != "" {
		return access.Identity{}, fmt.Errorf("the issuer answered %.100q", refused)
	}
	client, err := g.client(r)
	if err != nil {
		return access.Identity{}, err
	}
	answer, err := client.Exchange(g.config.Issuer.ClientContext(ctx), r.FormValue("code"),
		oauth2.VerifierOption(s.Verifier))
	if err != nil {
		return access.Identity{}, fmt.Errorf("the issuer did not take the code: %w", err)
	}
	idToken, ok := answer.Extra("id_token").(string)
	if !ok {
		return access.Identity{}, errNoToken
	}
	return g.config.Issuer.AuthenticateLogin(ctx, idToken, s.Nonce)
}

// refusesCode says whether the issuer has refused a code. What the issuer refuses or leaves for another reason, such as
// an outage, a wrong client or a person who declined, is no wrong guess of a code.
func refusesCode(err error) bool {
	var answer *oauth2.RetrieveError
	return errors.As(err, &answer) && (answer.ErrorCode == "invalid_grant" || answer.ErrorCode == "invalid_request")
}

// client is how this console calls the issuer. The name in the redirect URL is one of the known hosts.
func (g *Gate) client(r *http.Request) (*oauth2.Config, error) {
	endpoint, err := g.config.Issuer.Endpoint()
	if err != nil {
		return nil, err
	}
	if endpoint.AuthURL == "" || endpoint.TokenURL == "" {
		return nil, errNoLogins
	}
	base := g.config.PublicURL
	switch {
	case base != "":
	case r.TLS != nil:
		base = "https://" + r.Host
	default:
		base = "http://" + r.Host
	}
	client := &oauth2.Config{
		ClientID: g.config.Issuer.ClientID, Endpoint: endpoint, RedirectURL: base + callbackPath,
		Scopes: g.config.Issuer.Scopes,
	}
	if secret := g.config.Issuer.ClientSecret; secret != nil {
		client.ClientSecret = secret()
	}
	return client, nil
}

// issuerFailed shows that there was no login. The cause may hold what the issuer said, and is for the log. A stranger
// can make any number of logins fail.
func (g *Gate) issuerFailed(w http.ResponseWriter, r *http.Request, next string, err error) {
	if suppressed, due := g.logged.Due("login"); due {
		g.config.Logger.Warn("login by the issuer failed; no session began; check access.oidc_* and http.oidc_*",
			"cause", err, "not_logged_before", suppressed)
	}
	g.show(w, r, View{
		Status: http.StatusBadGateway, Next: next,
		Problem: "The login by " + g.config.Issuer.Name + " failed. Try again. The log of the coordinator says why.",
	})
}
