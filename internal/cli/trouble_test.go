package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/must"
)

// troubled are groups of two producers that fail for three causes.
func troubled(now time.Time) []*troubleGroup {
	const id = "2026-00000"
	return []*troubleGroup{
		{
			count: 4, state: "pending", exchange: "invoices-of-the-northern-branch",
			message: "billing-of-the-northern-branch/" + id, oldest: timestamppb.New(now.Add(-4 * time.Hour)),
			cause: "Unavailable: dial tcp 10.0.0.7:9000: connection refused",
		},
		{
			count: 3, state: "dead", exchange: "payments", message: "orders/" + id,
			oldest: timestamppb.New(now.Add(-3 * time.Hour)), cause: "NOT_FOUND - no exchange 'payments'",
		},
		{
			count: 1, state: "dead", exchange: "orders", message: "orders/" + id,
			oldest: timestamppb.New(now.Add(-time.Hour)), cause: "returned by the broker: 312 NO_ROUTE",
		},
	}
}

func TestTopKeepsCauseOnNarrowScreens(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for width, head := range map[int]string{
		0: "COUNT   STATE     EXCHANGE                          OLDEST    MESSAGE                                     " +
			"CAUSE",
		120: "COUNT   STATE     EXCHANGE                     OLDEST    MESSAGE                      CAUSE",
		80:  "COUNT   STATE     MESSAGE                      CAUSE",
		60:  "COUNT   MESSAGE                      CAUSE",
	} {
		var out bytes.Buffer
		s := &commandline.Session{Process: commandline.Process{Out: &out}}
		must.Succeed(t, s.PrintTable(troubleRows(troubled(now), width, now)))
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if got := strings.TrimRight(lines[0], " "); got != head {
			t.Errorf("%d columns: the head is\n%s, want\n%s", width, got, head)
		}
		for _, line := range lines {
			if has := utf8.RuneCountInString(line); width > 0 && has > width {
				t.Errorf("%d columns: a line has %d:\n%s", width, has, line)
			}
		}
		if !strings.HasSuffix(lines[1], "refused") || !strings.HasSuffix(lines[3], "NO_ROUTE") {
			t.Errorf("%d columns: a cause lacks its end:\n%s", width, out.String())
		}
	}
}
