package console

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// archiving switches the archive on.
func archiving(c *config.Config) { c.Archive.Retention = time.Hour }

// discarded has n messages in the archive: an operator has discarded them when they were DEAD.
func (r *coordinator) discarded(n int64) {
	r.Helper()
	r.send("orders", true, many(int(n), "refused", "no-such-exchange")...)
	r.await(msghandlerv1.State_STATE_DEAD, n)
	done, err := r.admin.DiscardMessages(r.Context(), &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: msghandlerv1.State_STATE_DEAD}},
		Reason:    "by mistake",
	})
	if err != nil || done.GetChanged() != n {
		r.Fatal(done, err)
	}
}

func TestFinishedMessagesAreReplayed(t *testing.T) {
	r := start(t, patient, archiving)
	r.discarded(3)
	b := browse(t, r.HTTPAddr())
	b.Open("/finished")
	b.Shows("Finished messages", "orders/refused-000002", "discarded", "no-such-exchange")
	b.Lacks("Replay all that match")
	fits(b, "finished")

	// One message, from its own page. The exchange refuses it again.
	b.Click(`.messages tbody tr:last-child a`)
	b.Shows("discarded in the archive", "no-such-exchange", "copies")
	fits(b, "archived")
	b.Click(`form[action="/replay"] button`)
	b.Shows("Replay 1 message?", "consumers that remember the id drop it as a duplicate")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "discarded by mistake"))
	b.Click(".card button")
	b.Shows("1 message replayed", "discarded by mistake")
	r.wrote(`action=replay`, `via=console`, `reason="discarded by mistake"`)
	b.Do(chromedp.Reload()) // a form that is sent again
	b.Shows("Nothing was changed")
	r.await(msghandlerv1.State_STATE_DEAD, 1)

	// All that match: the unfinished message stays as it is.
	b.Open("/finished?exchange=no-such-exchange&since=1h")
	b.Click(`form[action="/replay"] button`)
	b.Shows("Replay 2 messages?", "1 more match and cannot be replayed", "of the last 1h")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "all of them"))
	b.Click(".card button")
	b.Shows("2 messages replayed")
	r.await(msghandlerv1.State_STATE_DEAD, 3)
	b.Open("/finished?since=soon")
	b.Shows("a time is written as 02:10")
	b.Open("/finished?exchange=elsewhere")
	b.Shows("No finished message here matches")
}

func TestReadOnlyConsoleReplaysNothing(t *testing.T) {
	r := start(t, patient, archiving, func(c *config.Config) { c.HTTP.ReadOnly, c.HTTP.Bodies = true, false })
	r.discarded(1)
	b := browse(t, r.HTTPAddr())
	b.Open("/finished?exchange=no-such-exchange")
	b.Shows("orders/refused-000001")
	b.Lacks("Replay")
	b.Open("/finished/message?producer=orders&id=refused-000001")
	b.Shows("http.bodies is false")
	b.Lacks("Replay…")
	b.Open("/finished?header=a=b")
	b.Shows("http.bodies is false, and a filter would tell what headers hold")
	for _, path := range []string{"/replay", "/replay/do"} {
		answer, err := http.PostForm("http://"+r.HTTPAddr()+path, url.Values{"of": {"orders"}, "message": {"refused-000001"}})
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %d", path, answer.StatusCode)
		}
	}
}

func (s *scene) ListFinished(
	context.Context, *adminv1.ListFinishedRequest, ...grpc.CallOption,
) (*adminv1.ListFinishedResponse, error) {
	return &adminv1.ListFinishedResponse{Messages: s.finished, FromArchive: true}, nil
}

func (s *scene) GetFinished(
	_ context.Context, r *adminv1.GetFinishedRequest, _ ...grpc.CallOption,
) (*adminv1.GetFinishedResponse, error) {
	for _, m := range s.finished {
		if m.GetMessage().GetId() == r.GetId() {
			return &adminv1.GetFinishedResponse{Message: m}, nil
		}
	}
	return nil, halfmsg.ErrNotFound
}

func (s *scene) ReplayMessages(
	context.Context, *adminv1.ReplayMessagesRequest, ...grpc.CallOption,
) (*adminv1.ReplayMessagesResponse, error) {
	return &adminv1.ReplayMessagesResponse{Changed: 1}, nil
}
