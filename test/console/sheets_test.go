package console

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/browser"
)

// The overview of a hundred producers, of which two thirds are away, is no longer than that of three.
func TestCrowdedOverviewStaysShort(t *testing.T) {
	s := busy()
	now := time.Now()
	for i := range 100 {
		name := fmt.Sprintf("shop-%03d", i)
		s.board.Confirmed(name, 1, map[string]halfmsg.Verdict{"1": halfmsg.VerdictCommitted}, 3*time.Millisecond, nil)
		s.board.Published("", "exchange-"+name, halfmsg.Acked, 1000+i)
		s.fleet = append(s.fleet, coordinatorOf("crowd-"+name, running, now.Add(-time.Hour), now, 0))
		if i%3 > 0 {
			s.board.Confirmed(name, 1, nil, time.Second, fmt.Errorf("Confirm of producer %s at %s.svc:9000: Unavailable: "+
				"connection error: desc = \"transport: Error while dialing: dial tcp 10.0.0.%d:9000: connect: connection refused\"",
				name, name, i))
		}
	}
	b := browse(t, s.serve(t))
	for _, screen := range []struct {
		name          string
		width, height int64
		most          float64
	}{{"desktop", 1280, 900, 3500}, {"phone", 390, 844, 8000}} {
		for _, theme := range []string{"light", "dark"} {
			b.Do(chromedp.EmulateViewport(screen.width, screen.height))
			b.Theme(theme)
			b.Open("/")
			if high := browser.Eval[float64](b, `document.body.scrollHeight`); high > screen.most {
				t.Errorf("at %s the page is %v pixels high", screen.name, high)
			}
			whole(b, "crowded-"+screen.name+"-"+theme)
		}
	}
	b.Shows("connection refused", "1 to 10 of")
	b.Lacks("10.0.0.1:9000")
	b.Click(`#producers thead a[href*="producers.by=name"]`)
	b.Shows("orders")
	b.Click(`#producers a[rel=next]`)
	b.Shows("11 to 20 of")
	b.Lacks("…s")
}
