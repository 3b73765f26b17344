package e2e

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// A time limit for verdicts ends the wait for a producer that cannot be reached, and for a producer that does not know,
// though a coordinator dies meanwhile. Nothing is removed: an operator sees the messages, and why they were given up.
func TestTimeLimitGivesMessagesUp(t *testing.T) {
	const limit = 4 * time.Second
	w := newWorld(t)
	settings := []string{"MSGHANDLER_CONFIRM_GIVE_UP_AFTER=" + limit.String(), "MSGHANDLER_CONFIRM_BACKOFF=1s,1h"}
	w.startCoordinators(2, settings...)
	if _, err := w.channel().QueueDeclare("events", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	victim, other := w.coordinators[1], w.coordinators[0]
	begun := time.Now()
	var decided atomic.Bool
	unsure := newPlainProducer(t, "unsure", other.grpc, func(p *plainProducer) {
		p.confirm = func(ctx context.Context, ids []string) (*pb.ConfirmResponse, error) {
			if decided.Load() {
				return p.committed(ctx, ids)
			}
			return unknown(ctx, ids)
		}
	})
	unsure.sendHalves(time.Second, &pb.Message{Id: "1", RoutingKey: "events", Body: []byte("{}")})
	away := newPlainProducer(t, "away", other.grpc)
	away.target = servers.Addresses(t, 1)[0] // where nothing listens
	away.sendHalves(time.Second, &pb.Message{Id: "1", RoutingKey: "events", Body: []byte("{}")})
	honest := newPlainProducer(t, "honest", other.grpc)
	honest.sendHalves(2*limit, &pb.Message{Id: "1", RoutingKey: "events", Body: []byte("{}")})
	victim.Kill()
	w.restart(victim, settings...)

	for name, cause := range map[string]string{
		"away/1": "Unavailable: connection error", "unsure/1": "the producer answered UNKNOWN to the final question",
	} {
		events := w.events(name, "abandoned")
		if age := time.Since(begun); age < limit {
			t.Errorf("%s was given up after %v", name, age)
		}
		last := events[len(events)-1]
		if age := last.LastAt.Sub(events[0].FirstAt); age < limit {
			t.Errorf("%s was given up at an age of %v by Redis's clock", name, age)
		}
		if !strings.Contains(last.Cause, "confirm.give_up_after (4s) has passed: ") || !strings.Contains(last.Cause, cause) {
			t.Errorf("%s: show gives the cause %q, want %q", name, last.Cause, cause)
		}
	}
	shown, _ := programs.Run(t, "msghandler", []string{"MSGHANDLER_SERVER=" + other.grpc}, "show", "away/1")
	for _, want := range []string{
		"abandoned", "given up: no answer within", "connection refused", "confirm.give_up_after (4s) has passed",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not say %q:\n%s", want, shown)
		}
	}
	said, _ := w.examine(unsure)
	if want := "2 messages are abandoned; given up at the time limit: 2, such as "; !strings.Contains(said, want) {
		t.Errorf("the doctor does not say %q:\n%s", want, said)
	}
	servers.Eventually(t, time.Minute, "the metrics count both", func() bool {
		return pageHolds(t, other, "/metrics", `msghandler_messages{state="abandoned"} 2`)
	})
	// A message whose first question comes after the limit is still asked about.
	w.events("honest/1", "done")
	// A late Submit is heard, and the message is published.
	decided.Store(true)
	if state := unsure.submit("1", pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
		t.Errorf("submitted late, the message is %v", state)
	}
	w.events("away/1", "abandoned")
}
