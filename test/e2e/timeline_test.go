package e2e

import (
	"context"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// hostile is a producer's text that must be harmless where a person reads.
const hostile = "</p><script>alert(1)</script>\x1b[31m"

// timelineEvent is one event of show --output json.
type timelineEvent struct {
	Name, By, Cause string
	Count           int
	FirstAt         time.Time `json:"first_at"`
	LastAt          time.Time `json:"last_at"`
}

// events lists the events of show for a message, once the message is in that state.
func (w *world) events(name, state string) (events []timelineEvent) {
	w.t.Helper()
	servers.Eventually(w.t, patience, name+" is "+state, func() bool {
		said, status := w.run("show", name, "--output", "json")
		var shown struct {
			State  string
			Events []timelineEvent
		}
		if err := json.Unmarshal([]byte(said), &shown); err != nil || status != 0 {
			w.t.Fatalf("show says (%d): %s, %v", status, said, err)
		}
		events = shown.Events
		return shown.State == state
	})
	return events
}

func namesOf(events []timelineEvent) string {
	var names []string
	for _, e := range events {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

func TestTimelineListsEachStep(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1, "MSGHANDLER_SEND_BACKOFF=100ms,200ms", "MSGHANDLER_CONFIRM_BACKOFF=100ms")
	asked := 0 // one call at a time: there is one message
	p := newPlainProducer(t, "orders", w.coordinators[0].grpc, func(p *plainProducer) {
		p.confirm = func(ctx context.Context, ids []string) (*pb.ConfirmResponse, error) {
			switch asked++; asked {
			case 1:
				return &pb.ConfirmResponse{}, nil // an answer without the id, which is UNKNOWN
			case 2, 3:
				return nil, status.Error(codes.Unavailable, hostile)
			}
			return p.committed(ctx, ids)
		}
	})
	p.sendHalves(100*time.Millisecond, &pb.Message{
		Id: "1", Exchange: "gone", RoutingKey: "order.paid",
		Body: []byte("{}"),
	})

	events := w.events("orders/1", "dead")
	if names := namesOf(events); names != "send unknown unreachable committed refused exhausted" {
		t.Fatalf("the story is %s: %+v", names, events)
	}
	for i, want := range []struct {
		count int
		cause string
	}{
		{1, ""},
		{1, "UNKNOWN"},
		{2, "</p><script>alert(1)</script>"},
		{1, ""},
		{2, "no exchange 'gone'"},
		{1, "no exchange 'gone'"},
	} {
		e := events[i]
		found := e.Cause != "" && e.Name != "send" && e.Name != "committed"
		if e.Count != want.count || !strings.Contains(e.Cause, want.cause) || found != (e.By != "") {
			t.Errorf("%+v, want %+v", e, want)
		}
		if i > 0 && e.FirstAt.Before(events[i-1].LastAt) || e.LastAt.Before(e.FirstAt) {
			t.Errorf("%s from %v to %v, after %v", e.Name, e.FirstAt, e.LastAt, events[i-1].LastAt)
		}
	}
	story := []string{
		"stored", "asked; the producer answered UNKNOWN", "out of reach", "<script>alert(1)</script>", "committed",
		"published; the broker refused it", "no exchange 'gone'", "refused it for the last time",
	}
	env := []string{"MSGHANDLER_SERVER=" + w.coordinators[0].grpc}
	table, _ := programs.Run(t, "msghandler", env, "show", "orders/1")
	_, table, _ = strings.Cut(table, "WHAT HAPPENED")
	inOrder(t, "show", table, story)
	page := w.page("/message?producer=orders&id=1")
	if strings.Contains(page, "<script>alert") || strings.Contains(table, "\x1b") {
		t.Errorf("the producer's text is more than text in\n%s\n%s", page, table)
	}
	_, timeline, _ := strings.Cut(page, `<ol class="timeline">`)
	inOrder(t, "the console", html.UnescapeString(timeline), story)

	said, status := programs.Run(t, "msghandler", env, "retry", "orders/1", "--reason", "the exchange is <b>back</b>")
	if status != 0 {
		t.Fatalf("retry says (%d): %s", status, said)
	}
	events = w.events("orders/1", "dead")
	if names := namesOf(events); !strings.HasPrefix(names, "send unknown unreachable committed refused exhausted retry") {
		t.Fatalf("after the retry the story is %s", names)
	}
	if retry := events[6]; retry.Cause != "the exchange is <b>back</b>" || !strings.HasPrefix(retry.By, "127.0.0.1:") {
		t.Errorf("the retry is shown as %+v", retry)
	}
}

// inOrder demands texts one after another.
func inOrder(t *testing.T, where, text string, wanted []string) {
	t.Helper()
	rest := text
	for _, want := range wanted {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Errorf("%s does not show %q, or in another place:\n%s", where, want, text)
		}
		rest = after
	}
}

// page is a page of the console.
func (w *world) page(path string) string {
	w.t.Helper()
	response, err := http.Get("http://" + w.coordinators[0].http + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}
