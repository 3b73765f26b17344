package login

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/access"
)

// The cookies. Over HTTPS their names begin with __Host-: the browser takes such a cookie only from this host, so no
// neighbour below the same domain can plant a session.
const (
	sessionCookie = "msghandler_session"
	signInCookie  = "msghandler_signin"
	securePrefix  = "__Host-"
	// maxCookie bounds the value of a cookie. Browsers drop cookies of more than 4,096 bytes.
	maxCookie = 3800
)

// proof is what the cookie of a session holds.
type proof struct {
	// Sum is the hash of the token that the session began with.
	Sum []byte `json:",omitempty"`
	// Identity is what the issuer said; nil where the session began with a token of the token file.
	Identity *access.Identity `json:",omitempty"`
	// Began and Until bound the session. Began is in whole milliseconds, as logouts are kept.
	Began, Until time.Time
}

// session is the identity of a request's session, and when the session began. A session that has ended is removed from
// the browser.
func (g *Gate) session(w http.ResponseWriter, r *http.Request) (who access.Identity, began time.Time, ok bool) {
	var p proof
	if !g.cookie(r, sessionCookie, &p) {
		return who, began, false
	}
	if who, ok = g.renew(p); !ok || !p.Began.After(g.lastLogout(r, who.Name)) {
		g.dropCookie(w, r, sessionCookie)
		return access.Identity{}, began, false
	}
	return g.config.Authenticator.Complete(who), p.Began, true
}

// logoutTime bounds a look at the logouts. While Redis is away, sessions hold: the console shows what is wrong.
const logoutTime = 500 * time.Millisecond

// lastLogout is when the person last logged out, here or at another coordinator; zero where that is not known.
func (g *Gate) lastLogout(r *http.Request, who string) time.Time {
	if g.config.Logouts == nil {
		return time.Time{}
	}
	ctx, cancel := context.WithTimeout(r.Context(), logoutTime)
	defer cancel()
	last, err := g.config.Logouts.LastLogout(ctx, who)
	if err != nil {
		return time.Time{}
	}
	return last
}

// renew is the identity that a session proves now.
func (g *Gate) renew(p proof) (access.Identity, bool) {
	now := time.Now()
	switch {
	case !now.Before(p.Until):
		return access.Identity{}, false
	case p.Identity != nil:
		return *p.Identity, g.config.JWTs != nil || g.config.Issuer != nil
	case g.config.Tokens == nil || len(p.Sum) != sha256.Size:
		return access.Identity{}, false
	}
	identity, err := g.config.Tokens.AuthenticateSum([sha256.Size]byte(p.Sum))
	return identity, err == nil
}

// begin gives the browser a session and leads it on. Who has no role here gets none.
func (g *Gate) begin(w http.ResponseWriter, r *http.Request, p proof, next string) {
	identity, ok := g.renew(p)
	p.Began = g.sessionStart(r, identity.Name)
	if identity = g.config.Authenticator.Complete(identity); ok && identity.Role == access.NoRole {
		g.config.Refused(r.WithContext(access.With(r.Context(), identity)), "a session needs a role")
		g.show(w, r, View{Status: http.StatusForbidden, Next: next, Problem: "You have no role here, so no session began. " +
			"access.viewers, access.readers, access.operators and access.admins say who has which role."})
		return
	}
	if err := g.setCookie(w, r, sessionCookie, p, time.Until(p.Until)); err != nil {
		g.show(w, r, View{Status: http.StatusBadRequest, Next: next, Problem: "Your names, roles and producers are too " +
			"long for a cookie. Ask for a token with fewer of them."})
		return
	}
	if ok {
		g.config.LoggedIn(r, identity)
	}
	http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // each caller has it from localAddress
}

// sessionStart is now, or behind the last logout of the person: a coordinator whose clock is ahead may have noted that.
func (g *Gate) sessionStart(r *http.Request, who string) time.Time {
	now, last := g.config.Now().Truncate(time.Millisecond), g.lastLogout(r, who)
	if now.After(last) {
		return now
	}
	return last.Add(time.Millisecond)
}

// logout ends all sessions of the person, so that no copy of the cookie outlives them.
func (g *Gate) logout(w http.ResponseWriter, r *http.Request) {
	identity, began, ok := g.session(w, r)
	g.dropCookie(w, r, sessionCookie)
	if ok {
		g.config.LoggedOut(r, identity)
		if err := g.noteLogout(r, identity.Name, began); err != nil {
			g.config.Logger.Warn("logout not stored: a copy of the cookie works until the session ends; look after Redis, and "+
				"have the person log in and out again", "by", identity.Name, "cause", err)
		}
	}
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// noteLogout notes the time of a logout, which is no earlier than the session: the coordinator where it began may have
// a clock that is ahead.
func (g *Gate) noteLogout(r *http.Request, who string, began time.Time) error {
	if g.config.Logouts == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), logoutTime)
	defer cancel()
	at := g.config.Now()
	if at.Before(began) {
		at = began
	}
	return g.config.Logouts.NoteLogout(ctx, who, at)
}

// secure says whether the browser has come by HTTPS, to this console or to a proxy in front of it.
func (g *Gate) secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(g.config.PublicURL, "https://") && g.isPublic(r)
}

// isPublic says whether the browser has used the public name.
func (g *Gate) isPublic(r *http.Request) bool {
	_, host, _ := strings.Cut(g.config.PublicURL, "://")
	return strings.EqualFold(host, r.Host)
}

func (g *Gate) cookieName(r *http.Request, name string) string {
	if g.secure(r) {
		return securePrefix + name
	}
	return name
}

var errTooLong = errors.New("the cookie is too long")

// setCookie seals a value for the browser. SameSite is Lax, because a login by the issuer comes from another site, and
// so do links in alerts. Each change needs a POST of this site.
func (g *Gate) setCookie(w http.ResponseWriter, r *http.Request, name string, value any, age time.Duration) error {
	name = g.cookieName(r, name)
	sealed, err := g.sealers()[0].seal(name, value)
	if err != nil {
		return err
	}
	if len(sealed) > maxCookie {
		return errTooLong
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where the browser comes by HTTPS
		Name: name, Value: sealed, Path: "/", MaxAge: max(1, int(age.Seconds())), HttpOnly: true, Secure: g.secure(r),
		SameSite: http.SameSiteLaxMode,
	})
	return nil
}

func (g *Gate) dropCookie(w http.ResponseWriter, r *http.Request, name string) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // as above
		Name: g.cookieName(r, name), Path: "/", MaxAge: -1, HttpOnly: true, Secure: g.secure(r),
		SameSite: http.SameSiteLaxMode,
	})
}

// cookie opens a sealed cookie of a request.
func (g *Gate) cookie(r *http.Request, name string, value any) bool {
	name = g.cookieName(r, name)
	cookie, err := r.Cookie(name)
	return err == nil && len(cookie.Value) <= maxCookie && slices.ContainsFunc(g.sealers(), func(s sealer) bool {
		return s.open(name, cookie.Value, value)
	})
}

// sealers are those whose cookies hold here. The first seals new cookies.
func (g *Gate) sealers() []sealer {
	secret := g.config.Secret()
	if known := g.installation.Load(); known != nil && known.secret == secret {
		return []sealer{known.sealer, g.process}
	}
	id := g.config.InstallationID()
	if id == "" {
		return []sealer{g.process}
	}
	known := secretSealer{newSealer([]byte(secret), append(slices.Clone(g.config.Installation), id)), secret}
	g.installation.Store(&known)
	return []sealer{known.sealer, g.process}
}

// secretSealer is the sealer of a secret.
type secretSealer struct {
	sealer
	secret string
}

// sealer encrypts values so that only the holder of the secret can read, change or make them.
type sealer struct{ aead cipher.AEAD }

// newSealer derives the key of an installation from the secret, which others may use as well.
func newSealer(secret []byte, installation []string) sealer {
	info := fmt.Sprintf("msghandler console cookies %q", installation)
	key, err := hkdf.Key(sha256.New, secret, nil, info, sha256.Size)
	if err != nil {
		panic(err) // only for a longer key
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for a key of another length
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for a block of another size
	}
	return sealer{aead}
}

// seal encrypts a value for a cookie of a name. No other cookie can hold it.
func (s sealer) seal(name string, value any) (string, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	//nolint:gosec // the AEAD draws the nonce
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, plain, []byte(name))), nil
}

func (s sealer) open(name, text string, value any) bool {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return false
	}
	plain, err := s.aead.Open(nil, nil, sealed, []byte(name))
	return err == nil && json.Unmarshal(plain, value) == nil
}
