package console

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/test/browser"
)

// still opens the overview, which refreshes itself only on request.
func still(b *browser.Tab) {
	b.Helper()
	b.Do(browser.Command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.setInterval = () => 0`,
	}))
	b.Open("/")
}

// refreshed lets the page bring itself up to date once, and says whether there is a new overview in the place of the
// old.
func refreshed(b *browser.Tab) bool {
	b.Helper()
	browser.Eval[bool](b, `(() => {
		window.over = false;
		document.querySelector("main").dataset.old = "1";
		refresh().then(() => { window.over = true; });
		return true;
	})()`)
	b.Until(`window.over`)
	return !browser.Eval[bool](b, `"old" in document.querySelector("main").dataset`)
}

const stale = `document.body.classList.contains("stale")`

// A reply that is not the overview, such as a proxy's login page, does not replace the overview. The page then says
// that it is stale until a refresh succeeds.
func TestOverviewRefreshesOrSaysStale(t *testing.T) {
	var broken atomic.Pointer[http.HandlerFunc]
	pages := busy().pages()
	b := browse(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if instead := broken.Load(); instead != nil && r.URL.Path == "/" {
			(*instead)(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	})))
	still(b)
	browser.Eval[bool](b, `(document.querySelector('main a[href="/messages?state=dead"]').focus(), true)`)
	if !refreshed(b) || browser.Eval[bool](b, stale) {
		t.Error("the overview was not fetched anew")
	}
	focus := browser.Eval[string](b, `document.activeElement.getAttribute("href") ?? ""`)
	if focus != "/messages?state=dead" {
		t.Errorf("the focus went to %q", focus)
	}
	for name, instead := range map[string]http.HandlerFunc{
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "<main>no</main><footer></footer>", http.StatusBadGateway)
		},
		"a page to log in": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, "<main>Who are you?</main>")
		},
		"nobody": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		broken.Store(&instead)
		if refreshed(b) || !browser.Eval[bool](b, stale) {
			t.Errorf("%s replaced the overview, or the page did not say so", name)
		}
		b.Shows("312 dead")
		broken.Store(nil)
		if !refreshed(b) || browser.Eval[bool](b, stale) {
			t.Errorf("after %s the overview does not recover", name)
		}
	}
}

// A reader who marks a text to copy keeps the marked text.
func TestOverviewKeepsMarkedText(t *testing.T) {
	b := browse(t, busy().serve(t))
	still(b)
	browser.Eval[bool](b, `(getSelection().selectAllChildren(document.querySelector(".verdict")), true)`)
	if refreshed(b) || !browser.Eval[bool](b, `String(getSelection()).includes("312 dead")`) {
		t.Error("the marked message is gone")
	}
	browser.Eval[bool](b, `(getSelection().removeAllRanges(), true)`)
	if !refreshed(b) {
		t.Error("the overview was not fetched anew")
	}
}

func TestOneBoxSelectsTheWholeList(t *testing.T) {
	b := browse(t, busy().serve(t))
	b.Open("/messages?state=dead")
	idle := func(want string) {
		t.Helper()
		b.Shows(want)
		selected := browser.Eval[int](b, `document.querySelectorAll("#list tbody :checked").length`)
		disabled := browser.Eval[bool](b,
			`[...document.querySelectorAll("#list .bar button")].every((button) => button.disabled)`)
		if disabled != (selected == 0) {
			t.Errorf("%d are selected, and the buttons are disabled: %t", selected, disabled)
		}
	}
	idle("Selected:")
	b.Do(chromedp.Click(chromedp.CSS("#pick-all")))
	idle("61 selected:")
	b.Do(chromedp.Click(chromedp.CSS(`#list tbody tr:nth-child(2) input`)))
	idle("60 selected:")
	b.Do(chromedp.Click(chromedp.CSS("#pick-all")))
	idle("61 selected:")
	b.Do(chromedp.Click(chromedp.CSS("#pick-all")))
	idle("Selected:")
}
