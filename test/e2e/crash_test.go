package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// The order service dies at each step of an order's life, with markers in memory only, and is started again. What it
// committed is paid, what it had not committed never is, and nothing is left waiting.
func TestTheOrderServiceDiesAtEachStep(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1, "MSGHANDLER_CONFIRM_ATTEMPTS=2", "MSGHANDLER_CONFIRM_BACKOFF=200ms")
	w.startPayments()
	listen := servers.Addresses(t, 1)[0]
	for i, fail := range []string{"crash_before_commit", "crash_after_commit", "crash_before_submit"} {
		file := filepath.Join(w.dir, fail)
		order := fmt.Sprintf(`{"id":"%s","amount_cents":%d,"fail":"%s"}`+"\n", fail, i+1, fail)
		if err := os.WriteFile(file, []byte(order), 0o600); err != nil {
			t.Fatal(err)
		}
		p := w.startOrders(file, "--listen", listen)
		select {
		case <-p.done:
		case <-time.After(patience):
			t.Fatalf("%s: the order service is still there", fail)
		}
		if p.err == nil {
			t.Fatalf("%s: the order service ended well", fail)
		}
	}
	start(t, "producer-demo", nil, "--coordinator", w.targets(), "--listen", listen, "--dir", w.dir, "--stay")
	w.paid(2, patience)
	w.drained(patience)
	w.balanced(2)
	w.onlyTraces()
	if _, paid := w.payments()["crash_before_commit"]; paid {
		t.Error("an order that was never committed is paid")
	}
}
