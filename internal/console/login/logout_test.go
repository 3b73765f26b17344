package login_test

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/console/login"
)

// siteOf is where the cookies of a door are.
func siteOf(d *door) *url.URL {
	return &url.URL{Scheme: "http", Host: d.Listener.Addr().String(), Path: "/"}
}

// logouts are those of several coordinators, as Redis keeps them.
type logouts struct {
	mu   sync.Mutex
	last map[string]int64
}

func (l *logouts) NoteLogout(_ context.Context, who string, at time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[who] = max(l.last[who], at.UnixMilli())
	return nil
}

func (l *logouts) LastLogout(_ context.Context, who string) (time.Time, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ms, known := l.last[who]; known {
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, nil
}

// The clocks of two coordinators differ. A logout at one of them ends a session that began at the other, and a new
// login holds at both.
func TestLogoutHoldsWithSkewedClocks(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{time.Hour, -time.Hour, 0} {
		kept, both := &logouts{last: map[string]int64{}}, login.Config{}
		at := func(skew time.Duration) *door {
			return open(t, false, func(c *login.Config) {
				if both.Tokens == nil {
					both = *c
				}
				c.Tokens, c.Authenticator = both.Tokens, both.Authenticator
				c.Secret, c.Logouts = func() string { return "one secret for both coordinators" }, kept
				c.Now = func() time.Time { return time.Now().Add(skew) }
			})
		}
		first, second := at(skew), at(0)
		for range 2 { // also where a later logout is kept
			b, thief := first.browser(t), first.browser(t)
			b.logIn(first.anna, "/")
			b.shows("token:anna is viewer")
			cookies := b.jar.Cookies(siteOf(first))
			b.door = second
			b.do(http.MethodPost, "/logout", nil)
			for _, door := range []*door{first, second} {
				thief.jar.SetCookies(siteOf(first), cookies)
				thief.door = door
				if answer, text := thief.get("/"); answer.StatusCode != http.StatusSeeOther {
					t.Errorf("with a skew of %s a copy of the cookie shows %q", skew, text)
				}
			}
			b.door = first
			b.logIn(first.anna, "/")
			b.shows("token:anna is viewer")
		}
	}
}
