package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// The shop dies before and after its commit of a payment, and is started again. A paid order is shipped; an order whose
// payment did not commit is never shipped, and cancelled in the end; nothing is left waiting.
func TestOrderServiceSurvivesEachDeath(t *testing.T) {
	w := newWorld(t)
	w.payWithin = 5 * time.Second
	w.startCoordinators(1, "MSGHANDLER_CONFIRM_ATTEMPTS=2", "MSGHANDLER_CONFIRM_BACKOFF=200ms")
	w.startConsumers()
	listen := servers.Addresses(t, 1)[0]
	for i, fail := range []string{"crash_before_commit", "crash_after_commit"} {
		file := filepath.Join(w.dir, fail)
		order := fmt.Sprintf(`{"id":%d,"buyer":7,"product":%d,"fail":"%s"}`+"\n", i+1, i+1, fail)
		if err := os.WriteFile(file, []byte(order), 0o600); err != nil {
			t.Fatal(err)
		}
		p := w.startOrders(file, "--listen", listen)
		select {
		case <-p.Done:
		case <-time.After(patience):
			t.Fatalf("%s: the shop is still there", fail)
		}
		if p.Err == nil {
			t.Fatalf("%s: the shop ended well", fail)
		}
	}
	again := w.startOrders(os.DevNull, "--listen", listen)
	w.settled(again, 2)
	if b := w.books(); b.Shipped != 1 || b.Cancelled != 1 {
		t.Errorf("%d orders are shipped, %d cancelled, want 1 of each", b.Shipped, b.Cancelled)
	}
}

// With after_ack a coordinator dies between the broker's acknowledgement and the deletion of the marker. To the
// producer the message is done; the marker is deleted nevertheless, and the message is not published again.
func TestMarkerIsDeletedAfterCoordinatorDies(t *testing.T) {
	const afterAck = "MSGHANDLER_DELETE_BUSINESS_WHEN=after_ack"
	w := newWorld(t)
	w.startCoordinators(1, afterAck)
	c := w.coordinators[0]
	channel := w.channel()
	if _, err := channel.QueueDeclare("bills", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	var alive atomic.Bool
	deleted := make(chan []string, 10)
	p := newPlainProducer(t, "billing", c.grpc, func(p *plainProducer) {
		p.drop = func(ctx context.Context, ids []string) error {
			if !alive.Load() {
				<-ctx.Done() // its caller is dead by then
				return ctx.Err()
			}
			deleted <- ids
			return nil
		}
	})
	p.sendHalves(time.Minute, &pb.Message{Id: "1", RoutingKey: "bills", Body: []byte("one")})
	if state := p.submit("1", pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
		t.Fatalf("the acknowledged message is %v to its producer", state)
	}
	c.Kill()
	alive.Store(true)
	w.restart(c, afterAck)
	c.Ready(c.http)
	select {
	case ids := <-deleted:
		if len(ids) != 1 || ids[0] != "1" {
			t.Errorf("deleted %v", ids)
		}
	case <-time.After(patience):
		t.Fatal("the marker is still there")
	}
	w.drained(patience)
	w.onlyReceipts()
	w.get(channel, "bills")
	if queue, err := channel.QueueDeclarePassive("bills", true, false, false, false, nil); err != nil ||
		queue.Messages != 0 {
		t.Errorf("%d copies more, %v", queue.Messages, err)
	}
}
