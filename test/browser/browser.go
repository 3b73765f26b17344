// Package browser looks at pages as people do: in Chromium, without a window.
package browser

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/test/servers"
)

// patience is how long a page may take, on a machine that is busy with other tests.
const patience = time.Minute

// Tab is one page of a browser.
type Tab struct {
	testing.TB
	// Ctx is chromedp's context of the tab.
	Ctx  context.Context
	base string
}

// shared is the browser of all tests of a process, without a window; it ends with the process.
var shared = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.Flag("no-sandbox", os.Getuid() == 0), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("host-resolver-rules", "MAP *.example.com 127.0.0.1"))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ = chromedp.NewContext(ctx)
	return ctx, chromedp.Do(ctx)
})

// program is its name on Debian.
const program = "chromium"

// Start opens a tab of the browser; base stands before all paths.
func Start(t testing.TB, base string) *Tab {
	t.Helper()
	servers.Tool(t, program)
	all, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	b := &Tab{TB: t, Ctx: ctx, base: base}
	if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
		t.Fatal(err)
	}
	return b
}

// Do makes steps, each within the time that a page may take.
func (b *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(b.Ctx, patience)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			b.Fatalf("%v; the page is\n%s", err, b.Text())
		}
	}
}

// Open goes to a path.
func (b *Tab) Open(path string) {
	b.Helper()
	b.Do(chromedp.Navigate(b.base + path))
}

// Click follows a link or presses a button and waits for the page behind it.
func (b *Tab) Click(selector string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.Fatalf("click %s: %v; the page is\n%s", selector, err, b.Text())
	}
}

// Text is the text of the page, as a reader sees it.
func (b *Tab) Text() string { return Eval[string](b, `document.body.innerText`) }

// Eval evaluates an expression.
func Eval[T any](b *Tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Until waits for an expression to hold.
func (b *Tab) Until(expression string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Ctx, patience)
	defer cancel()
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](expression)); err != nil {
		b.Fatalf("%s: %v; the page is\n%s", expression, err, b.Text())
	}
}

// Command is a step that gives the browser a command of its protocol.
func Command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	})
}

// Zone lets pages see a reader in a time zone.
func Zone(name string) chromedp.Action[chromedp.Void] {
	return Command(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: name})
}

// Shows fails the test when the page lacks a text.
func (b *Tab) Shows(wanted ...string) {
	b.Helper()
	text := b.Text()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			b.Errorf("the page does not show %q:\n%s", want, text)
		}
	}
}

// Lacks fails the test when the page has a text.
func (b *Tab) Lacks(unwanted ...string) {
	b.Helper()
	text := b.Text()
	for _, not := range unwanted {
		if strings.Contains(text, not) {
			b.Errorf("the page shows %q:\n%s", not, text)
		}
	}
}

// Theme makes pages see a reader who prefers light or dark.
func (b *Tab) Theme(theme string) {
	b.Helper()
	b.Do(Command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
	}))
}

// Overflow is by how many pixels the page is wider than its screen.
func (b *Tab) Overflow() int {
	b.Helper()
	return Eval[int](b, `document.documentElement.scrollWidth - innerWidth`)
}

// Screenshot takes a picture of the screen into a file.
func (b *Tab) Screenshot(file string) {
	b.Helper()
	picture, err := chromedp.Run(b.Ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, picture, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}
