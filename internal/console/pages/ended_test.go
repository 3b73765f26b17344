package pages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// night is an API that knows what was wrong.
type night struct {
	noGroups
	asked *adminv1.ListProblemsRequest
}

func (n *night) ListProblems(
	_ context.Context, r *adminv1.ListProblemsRequest, _ ...grpc.CallOption,
) (*adminv1.ListProblemsResponse, error) {
	n.asked = r
	at := time.Date(2026, 11, 29, 2, 10, 0, 0, time.UTC)
	return &adminv1.ListProblemsResponse{Problems: []*adminv1.Finding{
		{
			Name: "letters-waiting", Severity: adminv1.Severity_SEVERITY_WARNING, What: "7 letters", Count: 7, StartCount: 3,
			StartTime: timestamppb.New(time.Now().Add(-time.Hour)),
		},
		{
			Name: "rabbitmq-away", Severity: adminv1.Severity_SEVERITY_TROUBLE, What: "refused", Remedy: "start it",
			StartTime: timestamppb.New(at), EndTime: timestamppb.New(at.Add(12 * time.Second)), Coordinators: []string{"c2"},
		},
	}}, nil
}

func TestProblemsPageHasBothTimes(t *testing.T) {
	t.Parallel()
	n := &night{}
	p := New(Config{Admin: func(string) Admin { return n }})
	page := func(path string) string {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, http.NoBody)
		p.write(w, r, p.ended(r))
		return w.Body.String()
	}
	got := page("/problems?since=9h&until=2h")
	for _, want := range []string{
		`datetime="2026-11-29T02:10:00.000Z"`,
		`datetime="2026-11-29T02:10:12.000Z"`, "<small>12 s</small>", "<small>c2</small>",
		"start it", "findings.md#rabbitmq-away", `<span class="mark warn">lasts</span>`, "growing from 3",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q:\n%s", want, got)
		}
	}
	if d := n.asked.GetUntil().AsTime().Sub(n.asked.GetSince().AsTime()); d != 7*time.Hour {
		t.Errorf("asked for %v", d)
	}
	page("/problems?since=2026-11-29+01:00&until=2026-11-29+03:00")
	if d := n.asked.GetUntil().AsTime().Sub(n.asked.GetSince().AsTime()); d != 2*time.Hour {
		t.Errorf("asked for %v of a night", d)
	}
	if got := page("/problems?since=soon"); !strings.Contains(got, "a time is written as 02:10 or") {
		t.Errorf("the page is\n%s", got)
	}
}
