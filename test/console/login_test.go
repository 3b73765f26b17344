package console

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/msghandler/msghandler/internal/access/tokenfile"
	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/browser"
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
func phone(b *browser.Tab) {
	b.Helper()
	b.Do(chromedp.EmulateViewport(390, 844, chromedp.EmulateScale(1.5)))
	b.Theme("dark")
}

// fits demands that the page is not wider than its screen, and takes its picture where asked.
func fits(b *browser.Tab, name string) {
	b.Helper()
	if over := b.Overflow(); over > 0 {
		b.Errorf("%s is %d pixels too wide", name, over)
	}
	if *shots == "" {
		return
	}
	b.Screenshot(filepath.Join(*shots, "console-"+name+".png"))
}

// An operator logs in with a token, on both screens, and under a name that the browser does not trust without HTTPS.
func TestLogInByToken(t *testing.T) {
	tokens := newTokenFile(t)
	r := startWith(t, tokens.test, patient, tokens.configure)
	r.send("orders", true, many(3, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 3)
	b := browse(t, r.at())
	b.Open("/messages?state=dead")
	b.Lacks("orders", "Messages")
	fits(b, "login-token-desktop-light")
	audit(b, "the login")
	b.Do(chromedp.SendKeys(chromedp.CSS("#token"), "mh_wrong"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(".problem")))
	b.Shows("This token is not valid here")
	phone(b)
	fits(b, "login-refused-phone-dark")
	b.Do(chromedp.SendKeys(chromedp.CSS("#token"), tokens.operator+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS(".messages")))
	b.Shows("token:anna", "operator", "orders/refused-000001", "Retry selected")
	b.Lacks("Discard")
	fits(b, "messages-operator-phone-dark")
	b.Click(`#list tbody tr:nth-child(1) a`)
	b.Click(`button[value=retry]`)
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "the exchange is back"))
	b.Click(".card button")
	b.Shows("1 message retried")
	r.wrote("action=retry result=done by=token:anna")
	b.Open("/change?action=discard&all=1&state=dead")
	b.Shows("Your role does not allow this", "discarding messages needs the role admin")
	fits(b, "refused-phone-dark")
	if cookie := browser.Eval[string](b, `document.cookie`); strings.Contains(cookie, "msghandler") {
		t.Errorf("a script can read %s", cookie)
	}
	b.Click(`.who button`)
	b.Shows("Log in with the token")
	b.Open("/messages")
	b.Shows("Log in with the token")
	r.wrote(`action=login result=done by=token:anna`, `action=login result=refused`,
		`action=logout result=done by=token:anna`, `via=console`)
}

// The overview renews itself. When the token is revoked, the page behind it is the login.
func TestRevokedTokenEndsTheOverview(t *testing.T) {
	tokens := newTokenFile(t)
	r := startWith(t, tokens.test, patient, tokens.configure)
	b := browse(t, r.HTTPAddr())
	b.Open("/")
	b.Do(chromedp.SendKeys(chromedp.CSS("#token"), tokens.operator+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS(".verdict")))
	fits(b, "overview-operator-desktop-light")
	tokens.write(t, "")
	b.Do(chromedp.WaitVisible(chromedp.CSS("#token")))
	b.Lacks("pending")
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
	b.Open("/message?producer=orders&id=refused-000001")
	fits(b, "login-desktop-light")
	b.Click(`.login a.button`)
	b.Click(`button[value=anna]`)
	b.Shows("orders/refused-000001", "jwt:anna", "admin", "Discard…", `"customer": "Zoë"`)
	fits(b, "message-admin-desktop-light")
	b.Click(`.who button`)
	phone(b)
	b.Open("/login")
	fits(b, "login-phone-dark")
	b.Click(`.login a.button`)
	b.Click(`button[value=bob]`)
	b.Shows("You have no role here, so no session began", "Log in with 127.0.0.1")
	b.Lacks("pending")
	fits(b, "stranger-phone-dark")
}
