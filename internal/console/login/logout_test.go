package login_test

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/console/login"
)

// notedLogouts keep what is noted, as Redis does.
type notedLogouts map[string]time.Time

func (n notedLogouts) NoteLogout(_ context.Context, who string, at time.Time) error {
	n[who] = at.Truncate(time.Microsecond)
	return nil
}

func (n notedLogouts) LastLogout(_ context.Context, who string) (time.Time, error) {
	return n[who], nil
}

// A coordinator whose clock is ahead has begun the session. The logout at another one ends the copies too.
func TestLogoutEndsSessionsOfOtherClocks(t *testing.T) {
	t.Parallel()
	var gate *login.Gate
	d := open(t, false, func(c *login.Config) {
		c.Logouts, c.Secret = notedLogouts{}, make([]byte, 32)
		gate = login.New(*c)
	})
	for _, ahead := range []time.Duration{0, time.Minute} {
		b, thief := d.browser(t), d.browser(t)
		begun := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, d.URL, nil)
		if err := gate.BeginAt(begun, r, d.anna, time.Now().Add(ahead)); err != nil {
			t.Fatal(err)
		}
		at, err := url.Parse(d.URL)
		if err != nil {
			t.Fatal(err)
		}
		for _, jar := range []*cookiejar.Jar{b.jar, thief.jar} {
			jar.SetCookies(at, begun.Result().Cookies())
		}
		thief.shows("token:anna is viewer")
		b.do(http.MethodPost, "/logout", nil)
		thief.isOut()
	}
}
