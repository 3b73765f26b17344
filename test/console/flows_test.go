package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/browser"
)

// patient never asks about half messages, so that they stay PENDING.
func patient(c *config.Config) { c.Confirm.After = time.Hour }

func TestOverviewLinksToEachProblem(t *testing.T) {
	r := start(t, patient)
	b := browse(t, r.HTTPAddr())
	b.Open("/")
	b.Shows("All is well", "All checks pass")
	r.send("orders", false, many(3, "waiting", "")...)
	r.send("orders", true, many(7, "refused", "no-such-exchange")...)
	r.send("billing", true, many(2, "lost", "")...)
	r.await(msghandlerv1.State_STATE_DEAD, 7)
	r.await(msghandlerv1.State_STATE_ABANDONED, 2)
	// The open page refreshes itself.
	b.Do(chromedp.WaitVisible(chromedp.CSS(".verdict.bad")))
	b.Until(`document.body.innerText.includes("2 abandoned") && document.title.startsWith("3 to check")`)
	b.Shows("Something is wrong", "7 dead: refused by the broker at every try", "2 abandoned",
		"Exchange no-such-exchange does not take messages", "NOT_FOUND", "UNKNOWN", "COMMITTED", "redis")
	b.Click(`.verdict a[href*="state=dead"]`)
	b.Shows("orders/refused-000001", "orders/refused-000007", "NOT_FOUND")
	b.Open("/")
	b.Click(`#exchanges-title ~ table th a[href*="no-such-exchange"]`)
	b.Shows("No message here matches")
}

func TestMessagePageNamesTheNextStep(t *testing.T) {
	r := start(t, patient)
	r.send("orders", false, many(1, "waiting", "shop")...)
	r.send("orders", true, many(1, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 1)
	b := browse(t, r.HTTPAddr())
	b.Open("/")
	b.Do(chromedp.SendKeys(chromedp.CSS("#find"), "orders/waiting-000001"+kb.Enter),
		chromedp.WaitVisible(chromedp.CSS("h1.name")))
	b.Shows("Next: Producer orders gets a Confirm call", "in 59 min", "order.paid", "application/json",
		`"customer": "Zoë"`, r.address, "no lease holder")
	b.Click(`.as a[href$="hex"]`)
	b.Shows("00000000  7b 22 6f 72 64 65 72 22")
	b.Open("/message?producer=orders&id=refused-000001")
	b.Shows("dead", "Nothing, until an operator retries it", "NOT_FOUND", "refused by the broker 2")
	b.Open("/message?producer=orders&id=none")
	b.Shows("No message orders/none", "The log says who discarded which message")
	b.Open("/find?name=waiting-000001") // the id of one producer
	b.Shows("Next: Producer orders gets a Confirm call")
	b.Open("/find?name=orders")
	b.Shows("No message has the id orders")
	b.Open("/find?name=orders/")
	b.Shows("write PRODUCER/ID")
}

func TestRetryAndDiscardNeedConfirmation(t *testing.T) {
	r := start(t, patient)
	r.send("orders", true, many(40, "refused", "no-such-exchange")...)
	r.send("billing", true, many(5, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 45)
	b := browse(t, r.HTTPAddr())

	// One message, from its own page. It is refused again, so the message comes back.
	b.Open("/message?producer=orders&id=refused-000001")
	b.Click(`button[value=retry]`)
	b.Shows("Retry 1 message?", "orders/refused-000001")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "the exchange is back"))
	b.Click(".card button")
	b.Shows("1 message retried", "the exchange is back")
	r.wrote(`action=retry`, `from=127.0.0.1:`, `via=console`, `reason="the exchange is back"`, "orders/refused-000001")
	b.Do(chromedp.Reload()) // a form that is sent again
	b.Shows("Nothing was changed")
	r.await(msghandlerv1.State_STATE_DEAD, 45)

	// A selection.
	b.Open("/messages?state=dead&producer=orders")
	b.Do(chromedp.Click(chromedp.CSS(`[value="orders/refused-000002"]`)),
		chromedp.Click(chromedp.CSS(`[value="orders/refused-000003"]`)))
	b.Shows("2 selected:")
	b.Click(`.bar button[value=discard]`)
	b.Shows("Discard 2 messages?", "They are removed for good", "orders/refused-000003")
	r.await(msghandlerv1.State_STATE_DEAD, 45)
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "test orders"))
	b.Click(".card button")
	b.Shows("2 messages discarded")
	r.await(msghandlerv1.State_STATE_DEAD, 43)
	r.wrote(`msg="audit: change made"`, `action=discard`, `reason="test orders"`)

	// All matching messages.
	b.Open("/messages?state=dead&producer=orders&error=no+exchange")
	b.Click(`a[href^="/change?action=discard"]`)
	b.Shows("Discard 38 messages?", "of producer orders", "whose last error contains “no exchange”")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "all of them"))
	b.Click(".card button")
	b.Shows("38 messages discarded")
	r.await(msghandlerv1.State_STATE_DEAD, 5)

	// The trail has each change, the newest first.
	b.Open("/audit")
	b.Shows("Audit", "discard done", "38 messages", `state=dead producer="orders"`, "all of them", "retry done",
		"the exchange is back", "127.0.0.1:", "console")
	b.Open("/audit?action=retry")
	b.Lacks("discard done")
	b.Open("/audit?since=soon")
	b.Shows("a time is written as 02:10")
	b.Open("/audit?result=refused")
	b.Shows("No record here.")
}

// wrote fails the test when the log lacks a text.
func (r *coordinator) wrote(wanted ...string) {
	r.Helper()
	for _, want := range wanted {
		if !strings.Contains(r.log.String(), want) {
			r.Errorf("the log lacks %s:\n%s", want, r.log)
		}
	}
}

func TestForgedFormsChangeNothing(t *testing.T) {
	r := start(t, patient)
	r.send("orders", true, many(3, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 3)
	address := "http://" + r.HTTPAddr() + "/change/do"
	form := url.Values{
		"selection": {"action=discard&all=1&state=dead&count=3&until=99999999999"}, "token": {strings.Repeat("0", 64)},
		"reason": {"x"},
	}
	for _, origin := range []string{"", "http://evil.example"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if origin != "" {
			request.Header.Set("Origin", origin)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("from %q: got %d", origin, answer.StatusCode)
		}
	}
	// One of our forms, changed on its way.
	b := browse(t, r.HTTPAddr())
	b.Open("/change?action=discard&all=1&state=dead&producer=nobody&error=x")
	b.Shows("There is nothing to do")
	b.Open("/change?action=discard&all=1&state=dead&error=exchange")
	b.Shows("Discard 3 messages?")
	browser.Eval[bool](b, `document.querySelector("[name=selection]").value += "&producer=orders", true`)
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "x"))
	b.Click(".card button")
	b.Shows("Nothing was changed")
	// A form without a reason.
	b.Open("/change?action=discard&all=1&state=dead&error=exchange")
	browser.Eval[bool](b, `document.querySelector("[name=reason]").value = "  ", true`)
	b.Click(".card button")
	b.Shows("Give a reason")
	r.await(msghandlerv1.State_STATE_DEAD, 3)
}

func TestReadOnlyConsoleChangesNothing(t *testing.T) {
	r := start(t, patient, func(c *config.Config) { c.HTTP.ReadOnly = true })
	r.send("orders", true, many(3, "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, 3)
	b := browse(t, r.HTTPAddr())
	for _, path := range []string{"/", "/messages?state=dead", "/message?producer=orders&id=refused-000001"} {
		b.Open(path)
		b.Shows("Read-only: nothing can be changed here")
		b.Lacks("Retry", "Discard")
	}
	b.Open("/change?action=discard&all=1&state=dead")
	b.Shows("This console is read-only")
	answer, err := http.PostForm("http://"+r.HTTPAddr()+"/change/do", url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", answer.StatusCode)
	}
}

func TestKeysMoveAndSelectInLists(t *testing.T) {
	r := start(t, patient)
	r.send("orders", false, many(120, "o", "shop")...)
	b := browse(t, r.HTTPAddr())
	b.Open("/messages")
	b.Do(chromedp.KeyEvent("jjkjx")) // to the second row, and select the row
	picked := browser.Eval[[]int](b, `[...document.querySelectorAll("#list tbody tr")]
		.flatMap((r, i) => r.querySelector(":checked") ? [i] : [])`)
	if fmt.Sprint(picked) != "[1]" {
		t.Errorf("rows %v are selected", picked)
	}
	b.Do(chromedp.KeyEvent("/"))
	if focus := browser.Eval[string](b, `document.activeElement.id`); focus != "find" {
		t.Errorf("the focus is on %q", focus)
	}
	b.Do(chromedp.KeyEvent(kb.Escape), chromedp.KeyEvent("n"),
		chromedp.WaitVisible(chromedp.CSS("#list tbody tr:nth-child(20):last-child")))
	b.Do(chromedp.KeyEvent("g"), chromedp.WaitVisible(chromedp.CSS(".verdict")))
}

func TestKeysMoveInEachList(t *testing.T) {
	b := browse(t, busy().serve(t))
	for _, path := range []string{"/messages?state=dead", "/finished?producer=orders", "/find?name=2026-481100"} {
		b.Open(path)
		b.Do(chromedp.KeyEvent("j"))
		if !browser.Eval[bool](b, `document.activeElement === $("main > .messages a, #list .messages a")`) {
			t.Errorf("%s: the focus is on %s", path, browser.Eval[string](b, `document.activeElement.outerHTML`))
		}
	}
}

func TestConsoleWorksWithoutJavaScript(t *testing.T) {
	r := start(t, patient)
	r.send("orders", false, many(120, "o", "shop")...)
	b := browse(t, r.HTTPAddr())
	b.Do(browser.Command(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	b.Open("/")
	b.Shows("pending", "120")
	b.Open("/messages")
	b.Click("#next")
	b.Do(chromedp.Click(chromedp.CSS(`#list tbody tr:nth-child(20) input`)))
	b.Click(`.bar button[value=discard]`)
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "by hand"))
	b.Do(chromedp.Click(chromedp.CSS("[name=lose]")))
	b.Click(".card button")
	b.Shows("1 message discarded")
}
