package e2e

import (
	"strings"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// A message keeps the callback target of its SendHalfMessage. When the target is gone the message waits, until the
// coordinator knows the new address of its producer.
func TestMovedProducerIsCalledAnew(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1)
	c := w.coordinators[0]
	if _, err := w.channel().QueueDeclare("moved", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	p := newPlainProducer(t, "orders", c.grpc)
	now, old := p.target, servers.Addresses(t, 1)[0]
	p.target = old
	p.sendHalves(100*time.Millisecond, &pb.Message{Id: "1", RoutingKey: "moved", Body: []byte("{}")})
	env := []string{"MSGHANDLER_SERVER=" + c.grpc}
	servers.Eventually(t, 30*time.Second, "the old address has no producer", func() bool {
		said, _ := programs.Run(t, "msghandler", env, "show", "orders/1")
		return strings.Contains(said, "pending") && strings.Contains(said, "connection refused")
	})
	c.Stop(20 * time.Second)
	w.restart(c, "MSGHANDLER_CALLBACKS_MOVED="+old+"="+now)
	c.Ready(c.http)
	if got := w.get(w.channel(), "moved"); got.MessageId != "1" {
		t.Errorf("got %q", got.MessageId)
	}
}
