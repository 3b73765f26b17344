package console

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/browser"
	"github.com/msghandler/msghandler/test/servers"
)

// goers is the producer of the messages that are discarded during the listing, one of so many.
const (
	goers  = "goers"
	goerIn = 500
)

// standing are the listed messages.
func standing(n int) (all []halfmsg.Message) {
	for i := range n {
		name := halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("o-%06d", i)}
		if i%goerIn == goerIn-1 {
			name.Producer = goers
		}
		all = append(all, halfmsg.Message{Name: name, Exchange: "shop", RoutingKey: "paid", ConfirmAfter: time.Hour})
	}
	return all
}

// TestLongListIsPagedAndFiltered turns the first pages in the browser and reads the others through the API, which a
// page's token leads into: all pages of 100,000 take the browser minutes (make lists).
func TestLongListIsPagedAndFiltered(t *testing.T) {
	r := start(t, patient)
	all := standing(*listed)
	r.store(all)
	r.send("billing", false, many(30, "b", "money")...)
	b := browse(t, r.HTTPAddr())
	servers.Eventually(t, 20*time.Second, "the counts, which are kept for a while, tell of all", func() bool {
		b.Open("/messages?state=pending")
		return strings.Contains(b.Text(), "pending "+thousands(*listed+30))
	})

	w := &walk{coordinator: r, times: map[string]int{}}
	token := w.turn(b)
	for token != "" {
		page, err := r.admin.ListMessages(t.Context(), &adminv1.ListMessagesRequest{
			Filter:    &adminv1.MessageFilter{State: msghandlerv1.State_STATE_PENDING},
			PageSize:  1000,
			PageToken: token,
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, record := range page.GetRecords() {
			w.times[record.GetProducer()+"/"+record.GetMessage().GetId()]++
		}
		w.stir()
		token = page.GetNextPageToken()
	}
	w.judgeOrder(all)
	filters(b)
}

// walk goes through a list while messages come and go.
type walk struct {
	*coordinator
	times map[string]int // how often each was listed
	n     int            // how many have come
}

// turn turns pages in the browser and returns the beginning of the next page.
func (w *walk) turn(b *browser.Tab) (token string) {
	for page := 1; ; page++ {
		names := browser.Eval[[]string](b,
			`[...document.querySelectorAll("#list tbody [name=name]")].map(box => box.value)`)
		for _, name := range names {
			w.times[name]++
		}
		w.stir()
		next := browser.Eval[string](b, `document.querySelector("#next")?.href ?? ""`)
		if next == "" || page >= *turned {
			link, err := url.Parse(next)
			if err != nil {
				w.Fatal(err)
			}
			return link.Query().Get("after")
		}
		b.Click("#next")
	}
}

// stir adds one message and discards another, both late in the list.
func (w *walk) stir() {
	w.n++
	w.send("comers", false, many(w.n, "c", "shop")[w.n-1:]...)
	if i := (*listed/goerIn-w.n)*goerIn + goerIn - 1; i >= 0 {
		_, err := w.admin.DiscardMessages(w.Context(), &adminv1.DiscardMessagesRequest{
			Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{{Producer: goers, Id: fmt.Sprintf("o-%06d", i)}}},
			Reason:    "it goes",
		})
		if err != nil {
			w.Error(err)
		}
	}
}

// judgeOrder fails the test unless each permanent message was listed once, and no other message twice.
func (w *walk) judgeOrder(all []halfmsg.Message) {
	listedOnce, wrong := 0, 0
	for _, m := range all {
		n := w.times[m.Name.String()]
		if n == 1 {
			listedOnce++
		}
		if n != 1 && m.Producer != goers {
			wrong++
			w.Errorf("%s was listed %d times", m.Name, n)
		}
		if wrong > 10 {
			w.Fatal("and so on")
		}
	}
	for name, n := range w.times {
		if n > 1 {
			w.Errorf("%s was listed %d times", name, n)
		}
	}
	if least := len(all) - len(all)/goerIn; listedOnce < least || listedOnce == len(all) {
		w.Errorf("%d of %d were listed, and %d were to stay", listedOnce, len(all), least)
	}
	w.Logf("%d messages were listed once, while %d came and went", listedOnce, w.n)
}

// filters looks for the 30 messages of billing, which are behind all others.
func filters(b *browser.Tab) {
	b.Helper()
	b.Open("/messages?state=pending")
	b.Do(chromedp.SendKeys(chromedp.CSS(`.filter input[name=producer]`), "billing"))
	b.Click(".filter button")
	b.Shows("billing/b-000030", "All pending")
	b.Lacks("orders/")
	b.Open("/messages?state=pending&exchange=money")
	for !strings.Contains(b.Text(), "billing/b-000001") {
		b.Shows("there are further messages")
		b.Click("#next")
	}
	b.Shows("billing/b-000030")
	b.Open("/messages?state=pending&age=1h")
	b.Shows("No message here matches")
	b.Open("/messages?state=pending&age=yesterday")
	b.Shows("an age is a number and a unit")
	b.Open("/messages?state=pending&after=bm9uc2Vuc2U")
	b.Shows("is not one that this listing has given")
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
