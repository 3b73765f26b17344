// Package site checks the site of the documentation that make docs has built, and looks at it in a browser.
//
//	make docs             # builds the site, and runs these tests on it
//	make docs SHOTS=DIR   # takes pictures of some pages as well
package site

import (
	"flag"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/test/browser"
)

var (
	built = flag.String("site", "", "where the built site is; without it only the check of links is tested")
	shots = flag.String("shots", "", "where pictures of the site go; empty: none are taken")
)

const (
	// below is a path at which the site is served, as a file server may serve it.
	below = "/some/where/"
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
	b.Open("howto/ids.html")
	b.Do(chromedp.SendKeys(chromedp.CSS("pagefind-searchbox input"), "tombstone"))
	const result = `pagefind-searchbox a[href*='.html#']`
	b.Do(chromedp.WaitVisible(chromedp.CSS(result)))
	picture(b, "search")
	b.Click(result)
	at := browser.Eval[string](b, `location.pathname`)
	headed := browser.Eval[bool](b, `document.querySelector("main " + location.hash) !== null`)
	said := browser.Eval[bool](b, `document.querySelector("main").innerText.includes("tombstone")`)
	if !strings.HasPrefix(at, below) || !headed || !said {
		t.Errorf("the result leads to %s; at a heading: %v; has the word: %v", at, headed, said)
	}
}

// What newcomers ask leads to the page with the answer first.
func TestSearchAnswersQuestions(t *testing.T) {
	if *built == "" {
		return
	}
	b := browse(t)
	for question, page := range map[string]string{
		"how to test my service": "howto/testing.html", "idempotency key": "howto/ids.html",
		"message not delivered": "run/message.html", "go get": "quickstart.html", "spring boot": "howto/java.html",
		"php": "howto/sql-outbox.html", "how many coordinators": "run/redis.html",
	} {
		b.Open("concepts.html")
		// The question comes at once: while a reader types, the results are those of a part.
		b.Do(chromedp.WaitVisible(chromedp.CSS("pagefind-searchbox input")))
		browser.Eval[bool](b, `(box => {
			box.focus()
			box.value = "`+question+`"
			return box.dispatchEvent(new Event("input", {bubbles: true}))
		})(document.querySelector("pagefind-searchbox input"))`)
		b.Until(`document.querySelector("pagefind-searchbox a[href*='.html']")?.pathname == "` + below + page + `"`)
	}
}

// An unknown address at any depth leads to the first page.
func TestUnknownAddressesLeadHome(t *testing.T) {
	if *built == "" {
		return
	}
	files := http.FileServer(http.Dir(*built))
	server := httptest.NewServer(http.StripPrefix(below, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(filepath.Join(*built, filepath.FromSlash(r.URL.Path))); err != nil {
			page, _ := os.ReadFile(filepath.Join(*built, notFound))
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(page)
			return
		}
		files.ServeHTTP(w, r)
	})))
	t.Cleanup(server.Close)
	b := browser.Start(t, server.URL+below)
	for _, address := range []string{"none.html", "howto/none", "a/b/c/none.html"} {
		b.Open(address)
		b.Do(chromedp.WaitVisible(chromedp.CSS("a[data-found]")))
		if home := browser.Eval[string](b, `document.querySelector("a").pathname`); home != below+"index.html" {
			t.Errorf("%s leads to %s", address, home)
		}
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
		b.Do(chromedp.EmulateViewport(width, 850))
		b.Theme("light")
		for _, page := range slices.Sorted(maps.Keys(pages)) {
			b.Open(page)
			if over := b.Overflow(); over > 0 {
				t.Errorf("%s is %d pixels too wide for a %s", page, over, name)
			}
		}
		for _, page := range []string{"index.html", "concepts.html", "reference/state-machine.html"} {
			for _, theme := range []string{"light", "dark"} {
				b.Do(chromedp.EmulateViewport(width, 850))
				b.Theme(theme)
				b.Open(page)
				picture(b, strings.Join([]string{strings.TrimSuffix(filepath.Base(page), ".html"), name, theme}, "-"))
			}
		}
	}
}

// browse opens a tab of the browser for the site below a path of a file server.
func browse(t *testing.T) *browser.Tab {
	t.Helper()
	server := httptest.NewServer(http.StripPrefix(below, http.FileServer(http.Dir(*built))))
	t.Cleanup(server.Close)
	return browser.Start(t, server.URL+below)
}

// picture takes a picture of the screen, where pictures are wanted.
func picture(b *browser.Tab, name string) {
	b.Helper()
	if *shots != "" {
		b.Screenshot(filepath.Join(*shots, "site-"+name+".png"))
	}
}
