package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// lister is an API with a message in each state, due in an hour.
type lister struct{ noGroups }

func (lister) ListMessages(
	_ context.Context, r *adminv1.ListMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.ListMessagesResponse, error) {
	return &adminv1.ListMessagesResponse{Records: []*adminv1.MessageRecord{{
		Producer: "orders", State: r.GetFilter().GetState(), Message: &msghandlerv1.Message{Id: "1001"},
		CreateTime: timestamppb.Now(), DueTime: timestamppb.New(time.Now().Add(time.Hour)),
		ConfirmAttempts: 15, PublishAttempts: 4,
	}}}, nil
}

// noGroups is an API without groups.
type noGroups struct{ Admin }

func (noGroups) GroupMessages(
	context.Context, *adminv1.GroupMessagesRequest, ...grpc.CallOption,
) (*adminv1.GroupMessagesResponse, error) {
	return &adminv1.GroupMessagesResponse{}, nil
}

var cells = regexp.MustCompile(`(?s)<td class="(?:age|number wide)"[^>]*>(.*?)</td>`)

// Nothing happens to ABANDONED and DEAD messages until an operator acts, and each state has the attempts of its own
// loop.
func TestListShowsDueTimeAndAttempts(t *testing.T) {
	t.Parallel()
	p := New(Config{
		Admin: func(string) Admin { return lister{} }, Peers: noPeers,
		Stats: func(context.Context) ([]halfmsg.Stat, error) { return nil, nil },
	})
	mux := http.NewServeMux()
	p.Register(mux)
	for state, want := range map[string]struct {
		waits    bool
		attempts string
	}{
		"pending": {true, "15"}, "sendable": {true, "4"}, "abandoned": {false, "15"}, "dead": {false, "4"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, as(access.Admin, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/messages?state="+state, nil)))
		found := cells.FindAllStringSubmatch(w.Body.String(), -1)
		if w.Code != http.StatusOK || len(found) != 3 {
			t.Fatalf("%s: status %d, %d cells:\n%s", state, w.Code, len(found), w.Body)
		}
		due, attempts := found[1][1], found[2][1]
		if waits := strings.Contains(due, " UTC\">in 1 h<"); waits != want.waits || attempts != want.attempts {
			t.Errorf("%s: next %q, attempts %q", state, due, attempts)
		}
	}
}

func (noGroups) ListProblems(
	context.Context, *adminv1.ListProblemsRequest, ...grpc.CallOption,
) (*adminv1.ListProblemsResponse, error) {
	return &adminv1.ListProblemsResponse{}, nil
}

func (noGroups) ListAudit(
	context.Context, *adminv1.ListAuditRequest, ...grpc.CallOption,
) (*adminv1.ListAuditResponse, error) {
	return &adminv1.ListAuditResponse{}, nil
}

// brokers is an API that remembers the brokers that it was asked for.
type brokers struct {
	noGroups
	listed, retried []string
}

func (a *brokers) ListMessages(
	_ context.Context, r *adminv1.ListMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.ListMessagesResponse, error) {
	a.listed = append(a.listed, r.GetFilter().GetBroker())
	return &adminv1.ListMessagesResponse{NextPageToken: "behind"}, nil
}

func (a *brokers) RetryMessages(
	_ context.Context, r *adminv1.RetryMessagesRequest, _ ...grpc.CallOption,
) (*adminv1.RetryMessagesResponse, error) {
	a.retried = append(a.retried, r.GetSelection().GetFilter().GetBroker())
	return &adminv1.RetryMessagesResponse{}, nil
}

// The filter for a broker reaches lists and changes, and the links to both. It is offered where brokers have names.
func TestMessagesAreFilteredByBroker(t *testing.T) {
	t.Parallel()
	api, peers := &brokers{}, peerstats.New()
	p := New(Config{
		Admin: func(string) Admin { return api }, Peers: func() Peers { return peers },
		Stats: func(context.Context) ([]halfmsg.Stat, error) { return nil, nil },
	})
	mux := http.NewServeMux()
	p.Register(mux)
	get := func(address string) string {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, as(access.Admin, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+address, nil)))
		return w.Body.String()
	}
	peers.Published("", "shop", halfmsg.Acked, 1)
	const field = `<input name="broker"`
	if strings.Contains(get("/messages?state=dead"), field) {
		t.Error("a broker can be chosen where there is a single broker")
	}
	peers.Published("events", "shop", halfmsg.Acked, 1)
	page := get("/messages?state=dead&broker=events")
	for _, want := range []string{
		field + ` value="events"`, `<option value="(default)">`, `<option value="events">`,
		`/messages?broker=events&amp;state=dead&amp;after=behind`,
		`/change?action=retry&amp;all=1&amp;broker=events&amp;state=dead`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s:\n%s", want, page)
		}
	}
	count := get("/change?action=retry&all=1&broker=events&state=dead")
	if !strings.Contains(count, "for broker <b>events</b>") {
		t.Errorf("the count does not name the broker:\n%s", count)
	}
	if !slices.Equal(api.listed, []string{"", "events"}) || !slices.Equal(api.retried, []string{"events"}) {
		t.Errorf("listed %q, retried %q", api.listed, api.retried)
	}
}
