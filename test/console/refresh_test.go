package console

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/test/browser"
)

// A list renews itself, and what the reader has ticked, unfolded, focused and scrolled to stays.
func TestListRefreshKeepsTheReadersPlace(t *testing.T) {
	s := busy()
	b := browse(t, s.serve(t))
	still(b)
	b.Open("/messages?state=dead")
	b.Do(chromedp.Click(chromedp.CSS(`[value="orders/2026-481130"]`)), chromedp.Click(chromedp.CSS(".more summary")))
	browser.Eval[bool](b, `(() => {
		scrollTo(0, 1500);
		document.querySelector('a[href*="2026-481131"]').focus({ preventScroll: true });
		return true;
	})()`)
	place := `Math.round(document.querySelector('#list a[href*="2026-481131"]').getBoundingClientRect().top)`
	before := browser.Eval[int](b, place)
	s.records = s.records[10:] // ten rows above go
	if !refreshed(b) {
		t.Fatal("the list was not fetched anew")
	}
	b.Lacks("2026-481100\n")
	if after := browser.Eval[int](b, place); after < before-2 || after > before+2 {
		t.Errorf("the row moved from %d to %d", before, after)
	}
	const kept = `[document.querySelector('[value="orders/2026-481130"]').checked,
		document.activeElement.href.includes("2026-481131"), document.querySelector(".more").open,
		document.querySelector("#picked").textContent === "1 selected:", document.querySelector("#pick-all").hidden]`
	if got := browser.Eval[[]bool](b, kept); !got[0] || !got[1] || !got[2] || !got[3] || got[4] {
		t.Errorf("ticked, focused, unfolded, counted, without the box for all: %v", got)
	}
	// A filter that is being written is not lost.
	b.Do(chromedp.SendKeys(chromedp.CSS(`.filter input[name=producer]`), "ord"))
	if refreshed(b) {
		t.Error("the refresh took away a half-written filter")
	}
}

// The refresh can be paused with a button and a key. The choice is remembered, and the page says so.
func TestRefreshPauses(t *testing.T) {
	b := browse(t, busy().serve(t))
	still(b)
	paused := func(want bool) {
		t.Helper()
		const told = `[document.querySelector("#pause").ariaPressed === "true",
			getComputedStyle(document.querySelector("footer"), "::before").content.includes("refresh is paused")]`
		if got := browser.Eval[[]bool](b, told); got[0] != want || got[1] != want {
			t.Errorf("the button and the footer say %v, want %t", got, want)
		}
		if refreshed(b) == want {
			t.Errorf("paused: %t, and the page was renewed: %t", want, want)
		}
	}
	paused(false)
	b.Do(chromedp.Click(chromedp.CSS("#pause")))
	paused(true)
	b.Open("/messages?state=dead")
	paused(true)
	b.Do(chromedp.KeyEvent("p"))
	paused(false)
}

// Times are in UTC, or in the reader's zone; the choice is remembered, and holds after a refresh.
func TestTimesCanBeLocal(t *testing.T) {
	b := browse(t, busy().serve(t))
	b.Do(browser.Zone("Asia/Kolkata"))
	still(b)
	zones := func(want string) {
		t.Helper()
		all := browser.Eval[[]string](b, `[...document.querySelectorAll("time:not(.minute)")]
			.map((e) => e.title || e.textContent)`)
		if len(all) < 2 {
			t.Fatalf("the page has the times %v", all)
		}
		for _, text := range all {
			if !strings.HasSuffix(text, want) {
				t.Errorf("a time is %q, want a time in %s", text, want)
			}
		}
	}
	zones(" UTC")
	b.Do(chromedp.Click(chromedp.CSS("#zone")))
	zones(" +05:30")
	if refreshed(b); browser.Eval[string](b, `document.querySelector("#zone").ariaPressed`) != "true" {
		t.Error("the button names no local times")
	}
	zones(" +05:30")
	for _, path := range []string{
		"/?range=1d", "/?range=1w", "/?from=2h&until=1h", "/messages?state=dead",
		"/message?producer=orders&id=2026-481100", "/audit", "/finished",
		"/finished/message?producer=orders&id=2026-481100", "/letters", "/letters?queue=payments", "/letter",
		"/find?name=2026-481100",
	} {
		b.Open(path)
		const inUTC = `[...document.querySelectorAll("main, main [title]")].map((e) => e.title || e.textContent)
			.filter((text) => text.includes("UTC"))`
		if texts := browser.Eval[[]string](b, inUTC); len(texts) > 0 {
			t.Errorf("%s has times in UTC: %q", path, texts)
		}
	}
	// A free window is written and read in the reader's zone.
	b.Open("/")
	day := time.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly)
	b.Do(chromedp.SendKeys(chromedp.CSS(".window [name=from]"), day+" 05:45"))
	b.Click(".window button")
	b.Shows("From " + day + " 05:45 to 2")
	if asked := browser.Eval[string](b, `location.search`); !strings.Contains(asked, "from="+day+"+00%3A15") {
		t.Errorf("the page asked for %s", asked)
	}
	// So is a day alone, in each form.
	b.Open("/audit")
	b.Do(chromedp.SendKeys(chromedp.CSS(".filter [name=since]"), day))
	b.Click(".filter button")
	before := time.Now().UTC().AddDate(0, 0, -3).Format(time.DateOnly)
	b.Until(`location.search.includes("since=` + before + `+18%3A30Z")`)
	b.Open("/?range=1d")
	const ticks = `[...document.querySelector(".times").children].map((e) => e.textContent)`
	for _, text := range browser.Eval[[]string](b, ticks) {
		if !strings.HasSuffix(text, ":30") {
			t.Errorf("the axis of a chart has the local time %q", text)
		}
	}
	browser.Eval[bool](b, `document.querySelector(".plot").focus(), true`)
	b.Do(chromedp.KeyEvent(kb.Home))
	b.Until(`(` + readOut + `).includes("+05:30\n")`)
	b.Open("/message?producer=orders&id=2026-481100")
	zones(" +05:30")
	b.Do(chromedp.Click(chromedp.CSS("#zone")))
	zones(" UTC")
}

// Single keys can be switched off, as WCAG 2.1.4 asks for, and the choice is remembered.
func TestKeysCanBeSwitchedOff(t *testing.T) {
	b := browse(t, busy().serve(t))
	still(b)
	b.Do(chromedp.KeyEvent("?"), chromedp.WaitVisible(chromedp.CSS("#help")))
	b.Do(chromedp.Click(chromedp.CSS("#keys-on")), chromedp.Click(chromedp.CSS("#help form button")))
	focus := func(want string) {
		t.Helper()
		b.Do(chromedp.KeyEvent("/"))
		if got := browser.Eval[string](b, `document.activeElement.id`); got != want {
			t.Errorf("after the key the focus is on %q, want %q", got, want)
		}
	}
	b.Open("/messages?state=dead")
	focus("")
	b.Do(chromedp.Click(chromedp.CSS("#help-open")), chromedp.Click(chromedp.CSS("#keys-on")),
		chromedp.Click(chromedp.CSS("#help form button")))
	b.Open("/messages?state=dead")
	focus("find")
}

// An id alone is found at each producer that has it.
func TestFindTakesAnIDAlone(t *testing.T) {
	b := browse(t, busy().serve(t))
	b.Open("/find?name=2026-481103")
	b.Shows("orders/2026-481103", "Next:")
	b.Open("/find?name=2026-481100")
	b.Shows("2 messages have the id 2026-481100", "orders/2026-481100", "stock/2026-481100")
	b.Open("/find?name=none")
	b.Shows("No message has the id none", "Ids that begin with none")
	b.Click(`main a[href*="state=dead"]`)
	if got := browser.Eval[string](b, `document.querySelector("[name=id]").value`); got != "none" {
		t.Errorf("the listed ids begin with %q", got)
	}
}

// A failing check has the shape of a finding: the short cause, what to do, the page, and the whole error folded.
func TestProblemsSayWhatToDo(t *testing.T) {
	const whole = `dial tcp 10.1.2.3:6379: connect: connection refused`
	s := busy()
	s.checks = []pages.Checked{pages.Failed("redis", cause.Redis, errors.New(whole))}
	b := browse(t, s.serve(t))
	b.Open("/")
	b.Shows("redis: connection refused", "start Redis, or set redis.url", "Runbook: redis-away",
		"Producer billing cannot be reached", "start it, or correct its callback target", "declare the exchange invoices")
	b.Lacks(whole)
	b.Do(chromedp.Click(chromedp.CSS(".verdict li:first-child summary")))
	b.Shows(whole, "producers get UNAVAILABLE")
}
