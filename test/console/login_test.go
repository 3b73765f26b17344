package console

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/issuer"
)

// publicName is a name of the console that is no IP address and not localhost. Without HTTPS, browsers trust it less.
const publicName = "console.example.com"

// tokenFile holds the tokens of an operator, and of the test, which may do everything.
type tokenFile struct {
	path     string
	operator string
	test     bearer
}

func newTokenFile(t *testing.T) *tokenFile {
	t.Helper()
	f := &tokenFile{filepath.Join(t.TempDir(), "tokens"), tokenfile.NewSecret(), bearer(tokenfile.NewSecret())}
	f.write(t, "anna")
	return f
}

// write gives the operator's token a name; without a name the token is revoked.
func (f *tokenFile) write(t *testing.T, name string) {
	t.Helper()
	lines := fmt.Sprintf("test sha256:%x role=admin producers=*\n", sha256.Sum256([]byte(f.test)))
	if name != "" {
		lines += fmt.Sprintf("%s sha256:%x role=operator\n", name, sha256.Sum256([]byte(f.operator)))
	}
	if err := os.WriteFile(f.path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
}

// configure makes the coordinator demand tokens.
func (f *tokenFile) configure(c *config.Config) {
	c.Access.TokenFile, c.HTTP.Hosts = f.path, []string{publicName}
}

// at is the console under its public name.
func (r *coordinator) at() string {
	_, port, _ := net.SplitHostPort(r.HTTPAddr())
	return net.JoinHostPort(publicName, port)
}

// phone makes the page as wide as a phone, in the dark.
func (b *tab) phone() {
	b.Helper()
	b.do(chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(1.5)),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: "dark"},
		}}))
}

// fits demands that the page is not wider than its screen, and takes its picture where asked.
func (b *tab) fits(name string) {
	b.Helper()
	if over := js[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		b.Errorf("%s is %d pixels too wide", name, over)
	}
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(*shots, "console-"+name+".png"), picture, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// An operator logs in with a token, on both screens, and under a name that the browser does not trust without HTTPS.
func TestLogInByToken(t *testing.T) {
	tokens := newTokenFile(t)
	r := startWith(t, tokens.test, patient, tokens.configure)
	r.send("orders", true, many(3, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 3)
	b := browse(t, r.at())
	b.open("/messages?state=dead")
	b.lacks("orders", "Messages")
	b.fits("login-token-desktop-light")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "mh_wrong"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(".problem")))
	b.shows("This token is not valid here")
	b.phone()
	b.fits("login-refused-phone-dark")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), tokens.operator+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS(".messages")))
	b.shows("token:anna", "operator", "orders/refused-000001", "Retry selected")
	b.lacks("Discard")
	b.fits("messages-operator-phone-dark")
	b.click(`.messages tbody tr:nth-child(1) a`)
	b.click(`button[value=retry]`)
	b.do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "the exchange is back"))
	b.click(".card button")
	b.shows("1 message retried")
	r.wrote("action=retry result=done by=token:anna")
	b.open("/change?action=discard&all=1&state=dead")
	b.shows("Your role does not allow this", "discarding messages needs the role admin")
	b.fits("refused-phone-dark")
	if cookie := js[string](b, `document.cookie`); strings.Contains(cookie, "msghandler") {
		t.Errorf("a script can read %s", cookie)
	}
	b.click(`.who button`)
	b.shows("Log in with the token")
	b.open("/messages")
	b.shows("Log in with the token")
	r.wrote(`action=login result=done by=token:anna`, `action=login result=refused`,
		`action=logout result=done by=token:anna`, `via=console`)
}

// The overview renews itself. When the token is revoked, the page behind it is the login.
func TestRevokedTokenEndsTheOverview(t *testing.T) {
	tokens := newTokenFile(t)
	r := startWith(t, tokens.test, patient, tokens.configure)
	b := browse(t, r.HTTPAddr())
	b.open("/")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), tokens.operator+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS(".verdict")))
	b.fits("overview-operator-desktop-light")
	tokens.write(t, "")
	b.do(chromedp.WaitVisible(chromedp.CSS("#token")))
	b.lacks("pending")
}

// A person logs in by the issuer, and another person, who has no role, learns so.
func TestLogInByIssuer(t *testing.T) {
	from := issuer.Start(t)
	from.AddUser("anna", map[string]any{"roles": []string{"admin"}})
	from.AddUser("bob", nil)
	tokens := newTokenFile(t)
	r := startWith(t, tokens.test, patient, tokens.configure, func(c *config.Config) {
		c.Access.OIDC.Issuer, c.Access.OIDC.Audience = from.URL, "msghandler"
		c.HTTP.OIDCClientID = "console"
	})
	from.AddClient("console", "", "http://"+r.at()+"/login/callback")
	r.send("orders", true, many(1, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 1)
	b := browse(t, r.at())
	b.open("/message?producer=orders&id=refused-000001")
	b.fits("login-desktop-light")
	b.click(`.login a.button`)
	b.click(`button[value=anna]`)
	b.shows("orders/refused-000001", "jwt:anna", "admin", "Discard…", `"customer": "Zoë"`)
	b.fits("message-admin-desktop-light")
	b.click(`.who button`)
	b.phone()
	b.open("/login")
	b.fits("login-phone-dark")
	b.click(`.login a.button`)
	b.click(`button[value=bob]`)
	b.shows("Your role does not allow this", "jwt:bob has the role none; looking at the console needs the role viewer")
	b.lacks("pending")
	b.fits("stranger-phone-dark")
	b.click(`.who button`)
	b.shows("Log in with 127.0.0.1")
}
