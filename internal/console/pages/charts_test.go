package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/console/history"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

func TestChartsHaveFreeWindow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 26, 13, 47, 3, 0, time.UTC)
	const hour = "The last hour range=1h "
	free := func(from, until string) string {
		return "From " + from + " to " + until + " from=" + from + "&until=" + until + " "
	}
	for address, want := range map[string]string{
		"/":                        hour,
		"/?range=15m":              "The last 15 minutes range=15m ",
		"/?range=forbidden":        hour,
		"/?from=02:00&until=02:20": free("2026-11-26 02:00", "2026-11-26 02:20"),
		"/?from=14:00":             free("2026-11-25 14:00", "2026-11-26 13:47"),
		"/?from=2h&until=1h":       free("2026-11-26 11:47", "2026-11-26 12:47"),
		"/?from=2026-11-24T02:00":  free("2026-11-24 02:00", "2026-11-26 13:47"),
		"/?from=8760h&until=1h":    free("2026-11-19 13:47", "2026-11-26 12:47"),
		"/?from=8760h&until=8000h": hour + "nothing is kept of what is older than a week",
		"/?from=2026-11-27T02:00":  hour + "2026-11-27 02:00 UTC is in the future",
		"/?from=1h&until=2h": hour + "2026-11-26 11:47 UTC is not after the start, 2026-11-26 12:47 UTC: write the end " +
			"with its date, or an earlier start",
		"/?from=yesterday&until=1h": hour + "a time is written as 02:10 or 2026-11-29 02:10, both of UTC, or as 2h for two " +
			"hours ago",
		"/?until=1h": hour + "say since when, such as 02:10",
	} {
		w := readWindow(httptest.NewRequest(http.MethodGet, address, nil), now)
		link, err := url.QueryUnescape(w.link(url.Values{}))
		link = strings.TrimSuffix(strings.TrimPrefix(link, "/?"), "#charts")
		if got := fmt.Sprintf("%s %s %s", w.Title(), link, w.Wrong); err != nil || got != want {
			t.Errorf("%s shows\n%s, want\n%s", address, got, want)
		}
	}
}

// diary is an API that tells what happened.
type diary struct {
	noGroups
	asked *adminv1.ListProblemsRequest
}

func (d *diary) ListProblems(
	_ context.Context, r *adminv1.ListProblemsRequest, _ ...grpc.CallOption,
) (*adminv1.ListProblemsResponse, error) {
	d.asked = r
	at := func(ago time.Duration) *timestamppb.Timestamp {
		return timestamppb.New(r.GetUntil().AsTime().Add(-ago))
	}
	return &adminv1.ListProblemsResponse{Problems: []*adminv1.Finding{
		{Name: "redis-away", What: "Redis is away", StartTime: at(10 * time.Minute)},
		{Name: "producer-away", What: "billing is away", StartTime: at(45 * time.Minute), EndTime: at(30 * time.Minute)},
		{
			Name: "coordinator-started", What: "started", Coordinators: []string{"c"},
			StartTime: at(44 * time.Minute), EndTime: at(44 * time.Minute),
		},
		{Name: "redis-disk", What: "disk", StartTime: at(3 * time.Hour), EndTime: at(55 * time.Minute)},
	}}, nil
}

func (d *diary) ListAudit(
	_ context.Context, r *adminv1.ListAuditRequest, _ ...grpc.CallOption,
) (*adminv1.ListAuditResponse, error) {
	ago := map[adminv1.AuditResult]time.Duration{
		adminv1.AuditResult_AUDIT_RESULT_DONE: 20 * time.Minute, adminv1.AuditResult_AUDIT_RESULT_FAILED: 6 * time.Minute,
	}[r.GetResult()]
	if ago == 0 {
		return nil, fmt.Errorf("asked for %v", r.GetResult())
	}
	return &adminv1.ListAuditResponse{Records: []*adminv1.AuditRecord{{
		Time: timestamppb.New(time.Now().Add(-ago)), Action: adminv1.AuditAction_AUDIT_ACTION_RELOAD, Count: 1,
		Instance: "c", Result: r.GetResult(),
	}}}, nil
}

func TestChartsMarkWhatHappened(t *testing.T) {
	t.Parallel()
	d := &diary{}
	p := New(Config{Admin: func(string) Admin { return d }})
	s := history.NewSeries(history.Ranges[0], nil, time.Now())
	marks := p.marks(httptest.NewRequest(http.MethodGet, "/", nil), s)
	var got []string
	for _, m := range marks.Marks {
		got = append(got, fmt.Sprintf("%s %.0f+%.0f", m.Letter(), m.Place, m.Wide))
		if m.Kind == "restart" && m.Text != "started, at c" {
			t.Errorf("the start is %q", m.Text)
		}
	}
	if fmt.Sprint(got) != "[R 90+0 P 83+17 R 67+0 S 27+0 C 25+25 P 0+8]" {
		t.Errorf("the marks are %v", got)
	}
	var labels []string
	for _, l := range marks.Labels {
		labels = append(labels, fmt.Sprintf("%.0f %s", l.Place, l.Text))
	}
	if fmt.Sprint(labels) != "[0 P 25 CS2 67 R 83 P 90 R]" {
		t.Errorf("the labels are %v", labels)
	}
	want := "1 start or end of a coordinator (S), 1 failing producer or exchange (C), 2 reloads (R), 2 other problems (P)"
	if marks.Summary() != want {
		t.Errorf("the summary is %q, want %q", marks.Summary(), want)
	}
	if !d.asked.GetSince().AsTime().Equal(s.TimeOf(0)) {
		t.Errorf("asked for %v", d.asked)
	}
}
