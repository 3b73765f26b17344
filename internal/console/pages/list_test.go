package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/console/peerstats"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// lister is an API with a message in each state, due in an hour.
type lister struct{ Admin }

func (lister) ListMessages(
	_ context.Context, r *msghandlerv1.ListMessagesRequest,
) (*msghandlerv1.ListMessagesResponse, error) {
	return &msghandlerv1.ListMessagesResponse{Records: []*msghandlerv1.MessageRecord{{
		Producer: "orders", State: r.GetState(), Message: &msghandlerv1.Message{Id: "1001"},
		CreateTime: timestamppb.Now(), DueTime: timestamppb.New(time.Now().Add(time.Hour)),
		ConfirmAttempts: 15, PublishAttempts: 4,
	}}}, nil
}

var cells = regexp.MustCompile(`(?s)<td class="(?:age|number wide)"[^>]*>(.*?)</td>`)

// Nothing happens to ABANDONED and DEAD messages until an operator acts, and each state has the attempts of its own
// loop.
func TestListShowsDueTimeAndAttemptsByState(t *testing.T) {
	t.Parallel()
	p := New(Config{
		Admin: func(string) Admin { return lister{} }, Peers: &peerstats.Registry{},
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
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/messages?state="+state, nil))
		found := cells.FindAllStringSubmatch(w.Body.String(), -1)
		if w.Code != http.StatusOK || len(found) != 3 {
			t.Fatalf("%s: status %d, %d cells:\n%s", state, w.Code, len(found), w.Body)
		}
		due, attempts := found[1][1], found[2][1]
		if waits := !strings.Contains(due, "-"); waits != want.waits || attempts != want.attempts {
			t.Errorf("%s: next %q, attempts %q", state, due, attempts)
		}
	}
}
