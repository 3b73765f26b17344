// Package site checks the site of the documentation that make docs has built, and looks at it in a browser.
//
//	make docs             # builds the site, and runs these tests on it
//	make docs SHOTS=DIR   # takes pictures of some pages as well
package site

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/test/servers"
)

var (
	built = flag.String("site", "", "where the built site is; without it only the check of links is tested")
	shots = flag.String("shots", "", "where pictures of the site go; empty: none are taken")
)

const (
	// below is a path at which the site is served, as a file server may serve it.
	below = "/some/where/"
	// patience is how long a page may take, on a machine that is busy with other tests.
	patience = time.Minute
)

func TestTheSiteHasNoMistakes(t *testing.T) {
	if *built == "" {
		return
	}
	found, err := mistakes(*built)
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range found {
		t.Error(mistake)
	}
}

// Below any path of a file server a reader finds a word of a page, and follows the result to its heading.
func TestSearchFindsAWord(t *testing.T) {
	if *built == "" {
		return
	}
	b := browse(t)
	b.open("howto/ids.html")
	b.do(chromedp.SendKeys(chromedp.CSS("pagefind-searchbox input"), "tombstone"))
	const result = `pagefind-searchbox a[href*='.html#']`
	b.do(chromedp.WaitVisible(chromedp.CSS(result)))
	b.picture("search")
	b.follow(result)
	at := evaluate[string](b, `location.pathname`)
	headed := evaluate[bool](b, `document.querySelector("main " + location.hash) !== null`)
	said := evaluate[bool](b, `document.querySelector("main").innerText.includes("tombstone")`)
	if !strings.HasPrefix(at, below) || !headed || !said {
		t.Errorf("the result leads to %s; at a heading: %v; has the word: %v", at, headed, said)
	}
}

// No page is wider than its screen: wide tables and code scroll by themselves.
func TestPagesFitTheScreen(t *testing.T) {
	if *built == "" {
		return
	}
	pages, err := read(*built)
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t)
	for name, width := range map[string]int64{"desktop": 1400, "tablet": 1000, "phone": 390} {
		b.screen(width, "light")
		for _, page := range slices.Sorted(maps.Keys(pages)) {
			b.open(page)
			if over := evaluate[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				t.Errorf("%s is %d pixels too wide for a %s", page, over, name)
			}
		}
		for _, page := range []string{"index.html", "concepts.html", "reference/state-machine.html"} {
			for _, theme := range []string{"light", "dark"} {
				b.screen(width, theme)
				b.open(page)
				b.picture(strings.Join([]string{strings.TrimSuffix(filepath.Base(page), ".html"), name, theme}, "-"))
			}
		}
	}
}

// tab is a page of a browser without a window, on a file server that has the site below a path.
type tab struct {
	*testing.T
	ctx  context.Context
	base string
}

func browse(t *testing.T) *tab {
	t.Helper()
	server := httptest.NewServer(http.StripPrefix(below, http.FileServer(http.Dir(*built))))
	t.Cleanup(server.Close)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(servers.Tool(t, "chromium")),
		chromedp.Flag("no-sandbox", os.Getuid() == 0), chromedp.WSURLReadTimeout(patience))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil { // the first call starts the browser, for as long as its context lasts
		t.Fatal(err)
	}
	return &tab{T: t, ctx: ctx, base: server.URL + below}
}

// do makes steps, each within the time that a page may take.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		err := chromedp.Do(ctx, step)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
	}
}

func (b *tab) open(page string) {
	b.Helper()
	b.do(chromedp.Navigate(b.base + page))
}

func (b *tab) screen(width int64, theme string) {
	b.Helper()
	b.do(chromedp.EmulateViewport(width, 850), chromedp.Func(
		func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}},
			})
			return err
		}))
}

// follow clicks a link and waits for the page behind it.
func (b *tab) follow(selector string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, chromedp.Click(chromedp.CSS(selector))); err != nil {
		b.Fatalf("click %s: %v", selector, err)
	}
}

func evaluate[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return v
}

// picture takes a picture of the screen, where pictures are wanted.
func (b *tab) picture(name string) {
	b.Helper()
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	file := filepath.Join(*shots, fmt.Sprintf("site-%s.png", name))
	if err = cmp.Or(err, os.WriteFile(file, picture, 0o600)); err != nil {
		b.Fatal(err)
	}
}
