package console

import (
	_ "embed"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/msghandler/msghandler/test/browser"
)

// axe finds violations of WCAG in a page. It is test data under its own licence, and no part of the product.
//
//go:embed testdata/axe-core-4.14.1/axe.min.js
var axe string

// violations runs axe with the rules of WCAG 2.2 A and AA, and writes each violation as the rule and the elements.
const violations = `axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"],
	resultTypes: ["violations"] }).then(({ violations }) => violations.map((v) =>
	v.id + ": " + v.nodes.slice(0, 3).map((n) => n.html.slice(0, 120) + " " + n.failureSummary).join("; ")))`

// violated lists how the page that is open violates WCAG.
func violated(b *browser.Tab) []string {
	b.Helper()
	browser.Eval[bool](b, axe+"; true")
	browser.Eval[bool](b, `(window.found = null, `+violations+`.then((found) => { window.found = found; }), true)`)
	b.Until(`window.found !== null`)
	return browser.Eval[[]string](b, `window.found`)
}

// audit fails the test when the page that is open violates WCAG.
func audit(b *browser.Tab, where string) {
	b.Helper()
	for _, violation := range violated(b) {
		b.Errorf("%s violates WCAG: %s", where, violation)
	}
}

var bothThemes = flag.Bool("both", false, "hold each page to WCAG in both themes")

// TestPagesMeetWCAG looks at the pages of the console, one half in the light on a desktop, the other in the dark on a
// phone. With the flag both it looks at each page in both: make wcag.
func TestPagesMeetWCAG(t *testing.T) {
	s := busy()
	s.records = append(s.records[:5], s.records[len(s.records)-1]) // axe takes its time for each row
	s.problems = eventful().problems
	b := browse(t, s.serve(t))
	still(b)
	paths := []string{
		"/", "/messages?state=dead", "/messages?state=pending&error=x", "/message?producer=orders&id=2026-481100", "/audit",
		"/change?action=discard&state=dead&name=orders/2026-481100",
		"/change?action=retry&all=1&state=dead&exchange=invoices",
		"/find?name=2026-481100", "/find?name=a/none", "/?producer=orders&range=1w",
		"/letters", "/letters?queue=payments", "/letter?queue=payments&name=payments/payments",
		"/letters/change?action=discard&all=1&queue=payments", "/finished?producer=orders",
		"/finished/message?producer=orders&id=2026-481100", "/problems", "/?range=1d", "/?from=2h&until=1h",
	}
	// Colours do not depend on the width, nor sizes on the theme.
	for theme, width := range map[string]int64{"light": 1280, "dark": 390} {
		b.Do(chromedp.EmulateViewport(width, 900))
		b.Theme(theme)
		for i, path := range paths {
			if !*bothThemes && (theme == "light") != (i%2 == 0) {
				continue
			}
			b.Open(path)
			browser.Eval[bool](b, `(document.querySelectorAll("details").forEach((d) => { d.open = true; }),
				document.querySelector(".plot")?.focus(), true)`)
			b.Do(chromedp.KeyEvent(kb.End)) // a chart shows its values
			if over := b.Overflow(); over > 0 {
				t.Errorf("%s is %d pixels too wide at %d", path, over, width)
			}
			audit(b, fmt.Sprintf("%s, %s, %d pixels wide", path, theme, width))
		}
		if *bothThemes || theme == "light" {
			browser.Eval[bool](b, `(document.querySelector("#help").showModal(), true)`)
			audit(b, "the list of keys, "+theme)
		}
	}
}

// A page with a defect of each kind is found out.
func TestAuditFindsViolations(t *testing.T) {
	b := browse(t, busy().serve(t))
	still(b)
	browser.Eval[bool](b, `(document.querySelector("main").insertAdjacentHTML("beforeend",
		'<p style="color: #ccc; background: #fff">pale</p><input><a href="/"></a>'), true)`)
	found := strings.Join(violated(b), "\n")
	for _, rule := range []string{"color-contrast:", "label:", "link-name:"} {
		if !strings.Contains(found, rule) {
			t.Errorf("axe does not find %s\n%s", rule, found)
		}
	}
}
