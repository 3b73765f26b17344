package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"

	"github.com/msghandler/msghandler/test/programs"
)

// TestArchivedMessageIsReplayed runs the whole way with a real broker: publish, archive, find, and publish again.
func TestArchivedMessageIsReplayed(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(2, "MSGHANDLER_ARCHIVE_RETENTION=1h")
	env := []string{"MSGHANDLER_SERVER=" + w.coordinators[1].grpc}
	channel := w.channel()
	if err := channel.ExchangeDeclare("bills", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	w.bind(channel, "bills", "bill.*", "bills")
	p := newPlainProducer(t, "billing", w.coordinators[0].grpc)
	for _, id := range []string{"7", "8"} {
		p.sendHalves(time.Minute, &pb.Message{
			Id: id, Exchange: "bills", RoutingKey: "bill.sent", Body: []byte("bill " + id),
			Headers: map[string]string{"tenant": id},
		})
		if state := p.submit(id, pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
			t.Fatalf("%s is %v", id, state)
		}
		if got := w.get(channel, "bills"); got.MessageId != id || got.Headers["msghandler-attempt"] != nil &&
			got.Headers["msghandler-attempt"] != int64(1) {
			t.Fatalf("delivered %+v", got)
		}
	}
	says := func(want string, args ...string) {
		t.Helper()
		if said, status := programs.Run(t, "msghandler", env, args...); status != 0 || !strings.Contains(said, want) {
			t.Errorf("%s says (%d): %s", strings.Join(args, " "), status, said)
		}
	}
	said, _ := programs.Run(t, "msghandler", env, "history", "--header=tenant=7", "--output=json")
	var history struct {
		Archive  bool
		Messages []struct{ ID, State, Exchange string }
	}
	if err := json.Unmarshal([]byte(said), &history); err != nil || !history.Archive || len(history.Messages) != 1 ||
		history.Messages[0].ID != "7" || history.Messages[0].Exchange != "bills" || history.Messages[0].State != "done" {
		t.Errorf("history says %s, %v", said, err)
	}
	says("bill 7", "show", "billing/7")
	says("would replay 2 messages", "replay", "--exchange=bills", "--since=1h", "--dry-run")

	says("replayed 1 message", "replay", "billing/7", "--reason=lost")
	if got := w.get(channel, "bills"); got.MessageId != "7" || string(got.Body) != "bill 7" ||
		got.Headers["msghandler-attempt"] != int64(2) || got.Headers["tenant"] != "7" {
		t.Errorf("delivered %+v", got)
	}
	says("replayed 1 message", "replay", "billing/8", "--new-id-suffix=-again")
	if got := w.get(channel, "bills"); got.MessageId != "8-again" || string(got.Body) != "bill 8" {
		t.Errorf("delivered %+v", got)
	}
	w.drained(20 * time.Second)
	says("lost", "audit", "--action=replay")
	if queue, err := channel.QueueDeclarePassive("bills", true, false, false, false, nil); err != nil ||
		queue.Messages != 0 {
		t.Errorf("%d more messages, %v", queue.Messages, err)
	}
}
