package console

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/chromedp/chromedp"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console/history"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/browser"
)

// eventful is a day with a deployment, and with an outage of the broker from four to three hours ago, whose backlog
// then goes out at once.
func eventful() *scene {
	s, now := busy(), time.Now()
	s.tray = morning()
	s.buckets = nil
	day := history.Ranges[1]
	steps := int(day.Span / day.Step)
	for i := range steps {
		at := day.Begin(now.Add(-time.Duration(steps-i) * day.Step))
		ago := now.Sub(at)
		wave := 1 + .4*math.Sin(float64(i)/70) + .05*math.Sin(float64(i)/3)
		out, class := 75_000*wave, 23
		switch {
		case ago > 3*time.Hour && ago < 4*time.Hour:
			out, class = 0, 55
		case ago > 2*time.Hour+50*time.Minute && ago <= 3*time.Hour:
			out, class = 900_000, 62
		}
		fields := map[string]string{
			"in": fmt.Sprint(int(75_000 * wave)), "out": fmt.Sprint(int(out)), "s/pending": "40",
			"s/dead": "0", "s/sendable": fmt.Sprint(int(60 + 75_000*wave - min(out, 75_000*wave))),
		}
		if out > 0 {
			fields["l16"], fields[fmt.Sprintf("l%d", class)] = "980", "20"
		}
		s.buckets = append(s.buckets, history.NewBucket(at, fields))
	}
	at := func(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-ago)) }
	event := func(name, what string, ago time.Duration) *adminv1.Finding {
		return &adminv1.Finding{Name: name, What: what, StartTime: at(ago), EndTime: at(ago)}
	}
	s.problems = []*adminv1.Finding{
		{
			Name: "producer-away", What: "producer billing cannot be reached: connection refused",
			StartTime: at(18 * time.Minute), Severity: adminv1.Severity_SEVERITY_TROUBLE, Remedy: cause.ProducerAway.Remedy,
		},
		{
			Name: "rabbitmq-alarm", What: "the check \"rabbitmq\" fails: RabbitMQ blocks the connection: low on disk",
			StartTime: at(4 * time.Hour), EndTime: at(3 * time.Hour), Coordinators: []string{"shop-coordinator-0"},
			Severity: adminv1.Severity_SEVERITY_TROUBLE, Remedy: cause.RabbitMQAlarm.Remedy,
		},
		event("coordinator-started", "shop-coordinator-2 started", 9*time.Hour),
		event("coordinator-started", "shop-coordinator-1 started", 9*time.Hour+2*time.Minute),
		event("coordinator-started", "shop-coordinator-0 started", 9*time.Hour+4*time.Minute),
	}
	return s
}

// ListProblems implements pages.Admin.
func (s *scene) ListProblems(
	context.Context, *adminv1.ListProblemsRequest, ...grpc.CallOption,
) (*adminv1.ListProblemsResponse, error) {
	return &adminv1.ListProblemsResponse{Problems: s.problems}, nil
}

// What happened at a time is marked in the charts and listed below, and the outage does not flatten the day.
func TestChartsShowEventfulDay(t *testing.T) {
	b := browse(t, eventful().serve(t))
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1280, 900}, {"phone", 390, 844}} {
		for _, theme := range []string{"light", "dark"} {
			b.Do(chromedp.EmulateViewport(screen.width, screen.height))
			b.Theme(theme)
			b.Open("/?range=1d")
			browser.Eval[bool](b, `document.querySelector(".marks").open = true`)
			whole(b, "charts-"+screen.name+"-"+theme)
		}
	}
	b.Shows("The last day", "drawn at the edge; the highest is", "logarithmic", "low on disk", "configuration refused",
		"3 starts and ends of coordinators (S), 1 failing producer or exchange (C), 1 reload (R), 1 other problem (P)")
	if n := browser.Eval[int](b, `document.querySelector(".plot").querySelectorAll(".when").length`); n != 6 {
		t.Errorf("the chart has %d marks", n)
	}
}

// whole demands that a page is no wider than its screen, and takes a picture of the whole page where asked.
func whole(b *browser.Tab, name string) {
	b.Helper()
	if over := b.Overflow(); over > 0 {
		b.Errorf("%s is %d pixels too wide", name, over)
	}
	if *shots == "" {
		return
	}
	picture, err := chromedp.Run(b.Ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*shots, "console-"+name+".png"), picture, 0o600); err != nil {
		b.Fatal(err)
	}
}
