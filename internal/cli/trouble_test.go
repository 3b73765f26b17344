package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// troubled are messages of two producers that fail for three causes.
func troubled(now time.Time) (records []*msghandlerv1.MessageRecord) {
	add := func(n int, producer, exchange, failure string, state msghandlerv1.State) {
		for i := range n {
			id := fmt.Sprintf("2026-%05d", i)
			records = append(records, &msghandlerv1.MessageRecord{
				Producer: producer, State: state, LastError: strings.ReplaceAll(failure, "ID", id),
				Message:    &msghandlerv1.Message{Id: id, Exchange: exchange},
				CreateTime: timestamppb.New(now.Add(-time.Hour * time.Duration(n-i))),
			})
		}
	}
	add(1, "orders", "orders", "returned by the broker: 312 NO_ROUTE", msghandlerv1.State_STATE_DEAD)
	add(4, "billing-of-the-northern-branch", "invoices-of-the-northern-branch",
		"Confirm of producer billing at dns:///billing.svc:9000: Unavailable: dial tcp 10.0.0.7:9000: connection refused",
		msghandlerv1.State_STATE_PENDING)
	add(3, "orders", "payments", "Exception (404) Reason: \"NOT_FOUND - no exchange 'payments'\" for ID",
		msghandlerv1.State_STATE_DEAD)
	return records
}

func TestTopGroupsByProducerExchangeAndCause(t *testing.T) {
	t.Parallel()
	now := time.Now()
	cut := map[msghandlerv1.State]bool{msghandlerv1.State_STATE_DEAD: true}
	var got []string
	for _, g := range troubleGroups(troubled(now), cut) {
		got = append(got, fmt.Sprintf("%d %s %s %t", g.count, g.state, g.message, g.atLeast))
	}
	want := "4 pending billing-of-the-northern-branch/2026-00000 false; 3 dead orders/2026-00000 true; " +
		"1 dead orders/2026-00000 true"
	if strings.Join(got, "; ") != want {
		t.Errorf("the groups are %q, want %q", got, want)
	}
}

func TestTopKeepsTheCauseOnNarrowScreens(t *testing.T) {
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
		if err := s.PrintTable(troubleRows(troubleGroups(troubled(now), nil), width, now)); err != nil {
			t.Fatal(err)
		}
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
