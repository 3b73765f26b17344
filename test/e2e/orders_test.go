// Package e2e runs the programs as their users do: real binaries, a real Redis, a real RabbitMQ, and processes that
// are really killed.
package e2e

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

var (
	orders = flag.Int("orders", 400, "how many orders each run has; the acceptance run has 20,000")
	outage = flag.Duration("outage", 4*time.Second, "how long Redis and RabbitMQ are away; the acceptance run has 20s")
)

// patience bounds every wait: when to give up, not how long things take.
const patience = 8 * time.Minute

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	os.Exit(programs.Main(m, "..."))
}

// payable counts the paid ones of n orders: all except the tenth that is declined and the tenth that is not paid.
func payable(n int) int { return n - (n+6)/10 - (n+4)/10 }

func TestPaidOrdersShipExactlyOnce(t *testing.T) {
	w := newWorld(t)
	// A broker that takes longer than this to acknowledge is a fault, which makes copies.
	w.startCoordinators(1, "MSGHANDLER_SEND_CONFIRM_TIMEOUT=1m", "MSGHANDLER_SEND_LEASE=3m")
	consumers := w.startConsumers()
	w.startOrders(w.writeOrders(*orders)).Ends(patience)
	w.paid(payable(*orders), patience)
	w.drained(patience)
	w.balanced(*orders)
	if b := w.books(); b.Shipped != payable(*orders) || len(b.Copies) > 0 {
		t.Errorf("without a fault %d orders are paid, want %d, and there were copies: %+v", b.Shipped, payable(*orders),
			b.Copies)
	}
	w.onlyReceipts()
	consumers.Stop(20 * time.Second)
	w.coordinators[0].Stop(25 * time.Second)
}

// settled demands that everything ends well after a fault: the books balance, copies are flagged, and nothing is
// left. An order whose payment the fault delayed for too long is cancelled, so only the books know the number of paid
// orders.
func (w *world) settled(ordersDone *programs.Process, n int) {
	w.t.Helper()
	ordersDone.Ends(patience)
	w.drained(patience)
	w.balanced(n)
	w.flagged()
	w.onlyReceipts()
}

func TestOrdersSurviveKillsOfOneCoordinator(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(3)
	w.startConsumers()
	ordersDone := w.startOrders(w.writeOrders(*orders))
	for part := 1; part <= 2; part++ {
		w.paid(part**orders/4, patience)
		victim := w.coordinators[part]
		victim.Kill()
		w.restart(victim)
	}
	w.settled(ordersDone, *orders)
}

func TestOrdersSurviveOutagesOfServers(t *testing.T) {
	rabbit := servers.PrivateRabbitMQ(t)
	w := newWorldOn(t, rabbit.URL)
	w.startCoordinators(1)
	w.startConsumers()
	ordersDone := w.startOrders(w.writeOrders(*orders))

	w.paid(*orders/4, patience)
	w.redis.Kill()
	<-time.After(*outage) // this test is about the length of the outage
	w.redis.Start()

	w.paid(*orders/2, patience)
	// Stopped, not killed: a single node of RabbitMQ 3.10 may leave a quorum queue without a leader after a kill, for
	// good, with any client.
	rabbit.Stop()
	<-time.After(*outage)
	rabbit.Start()

	w.settled(ordersDone, *orders)
	w.coordinators[0].Stop(25 * time.Second)
}
