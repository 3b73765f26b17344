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
)

// publicName is a name of the console that is no IP address and not localhost. Without HTTPS, browsers trust it less.
const publicName = "console.example.com"

// withToken gives an operator a token.
func withToken(t *testing.T, name string) (token string, change func(*config.Config)) {
	t.Helper()
	token = tokenfile.NewSecret()
	file := filepath.Join(t.TempDir(), "tokens")
	line := fmt.Sprintf("%s sha256:%x role=operator\n", name, sha256.Sum256([]byte(token)))
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return token, func(c *config.Config) {
		// The producers of this test show nothing.
		c.Access.TokenFile, c.Access.Anonymous, c.HTTP.Hosts = file, true, []string{publicName}
		c.HTTP.Addr = "0.0.0.0:0"
	}
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
	token, change := withToken(t, "anna")
	r := start(t, patient, change)
	r.send("orders", true, many(3, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 3)
	b := browse(t, r.at())
	b.open("/")
	b.shows("Everyone who reaches this address may do everything")
	b.fits("notice-desktop-light")
	b.click(`header a[href="/login"]`)
	b.fits("login-token-desktop-light")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), "mh_wrong"+kb.Enter), chromedp.WaitVisible(chromedp.CSS(".problem")))
	b.shows("This token is not valid here")
	b.phone()
	b.fits("login-refused-phone-dark")
	b.open("/login?next=" + "%2Fmessages%3Fstate%3Ddead")
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+kb.Enter), chromedp.WaitVisible(chromedp.CSS(".messages")))
	b.shows("token:anna", "operator", "orders/refused-000001", "Retry selected")
	b.lacks("Discard")
	b.fits("messages-operator-phone-dark")
	b.click(`.messages tbody tr:nth-child(1) a`)
	b.click(`button[value=retry]`)
	b.do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "the exchange is back"))
	b.click(".card button")
	b.shows("1 message retried")
	r.wrote(`msg="messages retried"`, "by=token:anna")
	b.open("/change?action=discard&all=1&state=dead")
	b.shows("Your role does not allow this", "to discard messages needs the role admin")
	b.fits("refused-phone-dark")
	b.click(`.who button`)
	b.shows("Log in with the token")
	b.open("/")
	b.lacks("token:anna")
	if cookie := js[string](b, `document.cookie`); strings.Contains(cookie, "msghandler") {
		t.Errorf("a script can read %s", cookie)
	}
}
