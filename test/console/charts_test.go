package console

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/msghandler/msghandler/test/browser"
)

// readOut are the values that a chart shows.
const readOut = `document.querySelector(".chart .read-out")?.innerText ?? ""`

func TestChartsHaveRangesAndValues(t *testing.T) {
	b := browse(t, busy().serve(t))
	b.Open("/")
	b.Shows("The last hour", "Messages per second", "1 day", "15 minutes", "600", "logarithmic")
	b.Click(`nav a[href*="range=1d"]`)
	b.Shows("The last day", "From half message to acknowledgement")
	b.Click(`#producers a[href*="producer=orders"].to-chart`)
	b.Shows("The last day of producer orders", "Refused calls per 3 min", "charts of all messages")
	b.Click(`nav a[href*="range=1h"]`)
	b.Shows("The last hour of producer orders", "Refused calls per 10 s")

	b.Do(chromedp.SendKeys(chromedp.CSS(`.window [name=from]`), "20m"))
	b.Click(`.window button`)
	b.Shows("From 2", " of producer orders", "Refused calls per 10 s")
	b.Click(`nav a[href*="range=1h"]`)

	// The pointer shows the values of a step.
	const box = `document.querySelector(".plot").getBoundingClientRect()`
	x, y := browser.Eval[float64](b, box+`.left + 200`), browser.Eval[float64](b, box+`.top + 30`)
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	b.Until(`/^\d\d:\d\d:\d\d UTC\nin \d+\nout \d+$/.test(` + readOut + `)`)
	// The values stay when the page renews itself, and go with the pointer.
	before := browser.Eval[string](b, readOut)
	if !refreshed(b) || browser.Eval[string](b, readOut) == "" {
		t.Errorf("after a refresh the values are not there any more: %q", before)
	}
	b.Shows("The last hour of producer orders")
	b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 5, 5))
	b.Until(readOut + ` === ""`)

	// The arrow keys show them too, and a screen reader says them; the focus outlives a refresh.
	browser.Eval[bool](b, `document.querySelector(".plot").focus(), true`)
	b.Do(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.End))
	last := browser.Eval[string](b, readOut)
	b.Do(chromedp.KeyEvent(kb.ArrowLeft))
	if now := browser.Eval[string](b, readOut); now == last || !strings.Contains(now, "UTC") {
		t.Errorf("the arrow shows %q after %q", now, last)
	}
	b.Until(`document.querySelector(".chart .spoken").textContent.includes("UTC, in ")`)
	if !refreshed(b) || !browser.Eval[bool](b, `document.activeElement.matches(".plot")`) {
		t.Error("the focus is lost after a refresh")
	}
	b.Do(chromedp.KeyEvent(kb.Escape))
	b.Until(readOut + ` === ""`)
}
