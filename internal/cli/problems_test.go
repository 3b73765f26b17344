package cli_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

func TestProblemsHaveStartEndAndPlace(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	run(nil, "problems", "--server="+c.addr).want(t, 0, "no problems\n", "")
	c.asked()
	at := time.Date(2026, 11, 29, 2, 10, 0, 0, time.UTC)
	stamp := func(after time.Duration) *timestamppb.Timestamp { return timestamppb.New(at.Add(after)) }
	c.findings = []*adminv1.Finding{
		{
			Name: "letters-waiting", Severity: adminv1.Severity_SEVERITY_WARNING, What: "7 letters", Remedy: "replay",
			StartTime: timestamppb.New(time.Now().Add(-time.Hour)), Count: 7, StartCount: 3, Coordinators: []string{"c1", "c2"},
		},
		{Name: "coordinator-started", What: "coordinator c1 started", StartTime: stamp(0), EndTime: stamp(0)},
		{
			Name: "rabbitmq-away", Severity: adminv1.Severity_SEVERITY_TROUBLE, What: "refused", Remedy: "start it",
			StartTime: stamp(0), EndTime: stamp(12 * time.Second), Coordinators: []string{"c2"}, Follows: "rabbitmq-alarm",
		},
	}
	got := run(nil, "problems", "--since=9h", "--until=2h", "--limit=7", "--server="+c.addr)
	got.want(t, 0, "lasts for 1 h", "") // and some seconds, on a slow machine
	got.want(t, 0, ", growing from 3   WARNING", "")
	got.want(t, 0, "letters-waiting       7 letters (c1, c2)\n", "")
	got.want(t, 0, "2026-11-29 02:10:00   -                               -          coordinator-started   ", "")
	got.want(t, 0,
		"2026-11-29 02:10:00   12 s                            TROUBLE    rabbitmq-away         refused (c2)\n", "")
	got.want(t, 0, "do:                   nothing; it follows rabbitmq-alarm, and ends with it\n", "")
	if asked := c.asked(); asked != "problems 7 from 9h0m0s to 2h0m0s" {
		t.Errorf("asked for %s", asked)
	}
	for _, bad := range []string{"--limit=0", "--limit=1001", "--since=soon", "--until=24h", "--since=2042-01-01"} {
		run(nil, "problems", bad, "--server="+c.addr).want(t, 2, "", bad[:7])
	}
}
