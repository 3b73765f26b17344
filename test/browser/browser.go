package console

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/test/servers"
)

// patience is how long a page may take, on a machine that is busy with other tests.
const patience = time.Minute

// tab is one page of a browser, with the address of a console before all paths.
type tab struct {
	testing.TB
	ctx  context.Context
	base string
}

// browser is the browser of all tests, without a window; it ends with the process.
var browser = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.Flag("no-sandbox", os.Getuid() == 0), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("host-resolver-rules", "MAP "+publicName+" 127.0.0.1"))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	return ctx, chromedp.Do(ctx)
})

// program is its name on Debian.
const program = "chromium"

// browse opens a tab of the browser.
func browse(t testing.TB, address string) *tab {
	t.Helper()
	servers.Tool(t, program)
	all, err := browser()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	b := &tab{TB: t, ctx: ctx, base: "http://" + address}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatal(err)
	}
	return b
}

// do makes steps, each within the time that a page may take.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			b.Fatalf("%v; the page is\n%s", err, b.text())
		}
	}
}

// open goes to a path.
func (b *tab) open(path string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// click follows a link or presses a button and waits for the page behind it.
func (b *tab) click(selector string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.Fatalf("click %s: %v; the page is\n%s", selector, err, b.text())
	}
}

// text is the text of the page, as a reader sees it.
func (b *tab) text() string { return js[string](b, `document.body.innerText`) }

// js evaluates an expression.
func js[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to hold.
func (b *tab) until(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression)); err != nil {
		b.Fatalf("%s: %v; the page is\n%s", expression, err, b.text())
	}
}

// command is a step that gives the browser a command of its protocol.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	})
}

// shows fails the test when the page lacks a text.
func (b *tab) shows(wanted ...string) {
	b.Helper()
	text := b.text()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			b.Errorf("the page does not show %q:\n%s", want, text)
		}
	}
}

// lacks fails the test when the page has a text.
func (b *tab) lacks(unwanted ...string) {
	b.Helper()
	text := b.text()
	for _, not := range unwanted {
		if strings.Contains(text, not) {
			b.Errorf("the page shows %q:\n%s", not, text)
		}
	}
}
