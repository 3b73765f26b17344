package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/test/browser"
)

// squeezed is a text of many words in a narrow cell of a table.
const squeezed = `([...document.querySelectorAll("td, th")].find(
	(cell) => cell.innerText.length > 60 && cell.clientWidth > 0 && cell.clientWidth < 120) || {innerText: ""}).innerText`

// broken is a name of one word on two lines.
const broken = `([...document.querySelectorAll("tbody th a")].find((name) => /^\w+$/.test(name.innerText) &&
	name.getBoundingClientRect().height > 40) || {innerText: ""}).innerText`

// wraps says that the header has several lines.
const wraps = `document.querySelector("header").clientHeight > 80`

// TestScreenshots demands that no page is wider than its screen, squeezes a text or breaks a name, and takes the
// pictures that the page of the console shows.
func TestScreenshots(t *testing.T) {
	page, err := os.ReadFile("../../docs/run/console.md")
	if err != nil {
		t.Fatal(err)
	}
	bad, day := browse(t, busy().serve(t)), browse(t, eventful().serve(t))
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1280, 900}, {"phone", 390, 844}} {
		for _, theme := range []string{"light", "dark"} {
			for name, at := range map[string]struct {
				*browser.Tab
				path string
			}{
				"overview": {bad, "/"},
				"messages": {bad, "/messages?state=dead"},
				"message":  {bad, "/message?producer=orders&id=2026-481100"},
				"found":    {bad, "/find?name=2026-481100"},
				"audit":    {bad, "/audit"},
				"finished": {bad, "/finished"},
				"retry":    {bad, "/change?action=retry&all=1&state=dead&exchange=invoices&error=no+exchange"},
				"charts":   {day, "/?range=1d"},
				"letters":  {day, "/letters?queue=payments"},
				"queues":   {day, "/letters"},
				"problems": {day, "/problems"},
			} {
				at.Do(chromedp.EmulateViewport(screen.width, screen.height))
				at.Theme(theme)
				at.Open(at.path)
				name = fmt.Sprintf("console-%s-%s-%s.png", name, screen.name, theme)
				if over := at.Overflow(); over > 0 {
					t.Errorf("%s is %d pixels too wide", name, over)
				}
				if text := browser.Eval[string](at.Tab, squeezed); text != "" {
					t.Errorf("%s squeezes %q into a narrow column", name, text)
				}
				if text := browser.Eval[string](at.Tab, broken); text != "" {
					t.Errorf("%s breaks the name %q", name, text)
				}
				if screen.width >= 1280 && browser.Eval[bool](at.Tab, wraps) {
					t.Errorf("the header of %s has two lines", name)
				}
				if *shots != "" && strings.Contains(string(page), name) {
					take(at.Tab, name)
				}
			}
		}
	}
}

// take takes a picture: of the charts alone, of the first screen of a long list, or of the whole page.
func take(b *browser.Tab, name string) {
	b.Helper()
	picture := chromedp.FullScreenshot(100)
	switch {
	case strings.Contains(name, "-charts-"):
		browser.Eval[bool](b, `document.querySelector(".marks").open = true`)
		picture = chromedp.Screenshot(chromedp.CSS("#charts"))
	case strings.Contains(name, "-messages-"), strings.Contains(name, "-letters-"):
		picture = chromedp.CaptureScreenshot()
	}
	taken, err := chromedp.Run(b.Ctx, picture)
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, name), taken, 0o600); err != nil {
		b.Fatal(err)
	}
}
