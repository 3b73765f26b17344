package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// onServers runs a test with a database on each of the servers, named as the demos name their databases, all at once.
func onServers(t *testing.T, test func(t *testing.T, database string)) {
	t.Run("postgresql", func(t *testing.T) {
		t.Parallel()
		test(t, servers.PostgreSQL(t).URL())
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		test(t, servers.MariaDB(t).URL())
	})
}

// The shop is on a database server, and each process is killed once while orders flow: the only coordinator too.
func TestDemosOnDatabaseServers(t *testing.T) {
	const n = 300
	onServers(t, func(t *testing.T, database string) {
		w := newWorld(t)
		w.shared = database
		w.startCoordinators(1)
		consumers := w.startConsumers()
		listen, file := servers.Addresses(t, 1)[0], w.writeOrders(n)
		orders := w.startOrders(file, "--listen", listen, "--parallel", "8")

		w.paid(n/5, patience)
		consumers.Kill()
		w.startConsumers()
		w.paid(n*2/5, patience)
		w.coordinators[0].Kill()
		w.restart(w.coordinators[0])
		w.paid(n*3/5, patience)
		orders.Kill()
		// It stays: only the shop can answer for half messages that were in flight at its kill.
		restarted := w.startOrders(file, "--listen", listen, "--stay")
		w.balanced(n)
		w.drained(patience)
		w.flagged()
		w.onlyReceipts()
		restarted.Stop(20 * time.Second)
		if b := w.books(); b.Shipped < n*3/5 {
			t.Errorf("only %d of %d orders were shipped", b.Shipped, n)
		}
	})
}

// call makes a request of a buyer, and returns status and answer.
func (s shop) call(method, path, body string) (int, string) {
	s.T.Helper()
	request, err := http.NewRequestWithContext(s.T.Context(), method, "http://"+s.http+path, strings.NewReader(body))
	if err != nil {
		s.T.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.T.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.T.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// Two buyers want one product. The first does not pay in time, and the product is on sale again.
func TestOrdersOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.sqlite, w.payWithin = true, 5*time.Second // two processes share a file
	w.startCoordinators(1)
	w.startConsumers()
	s := w.startShop()
	want := func(method, path, body string, status int, part string) {
		t.Helper()
		if got, text := s.call(method, path, body); got != status || !strings.Contains(text, part) {
			t.Errorf("%s %s: %d %s, want %d and %q", method, path, got, text, status, part)
		}
	}
	want("POST", "/orders", `{"id":1,"buyer":7,"product":42}`, 201, `"status":"pending"`)
	want("POST", "/orders", `{"id":1,"buyer":7,"product":42}`, 201, `"status":"pending"`)
	want("POST", "/orders", `{"id":2,"buyer":8,"product":42}`, 409, "sold")
	want("POST", "/orders", `{"id":2,"buyer":8,"product":4200}`, 404, "no such product")
	want("POST", "/orders", `{"id":2}`, 400, "which is a number above 0")
	want("GET", "/orders/2", "", 404, "no such order")
	want("GET", "/orders/two", "", 400, "malformed")
	want("POST", "/orders", `{"id":3,"buyer":8,"product":43}`, 201, `"price":930`)
	want("POST", "/orders/3/payment?fail=declined", "", 409, "declined")
	want("POST", "/orders/3/payment?fail=what", "", 400, "unknown fail")
	want("POST", "/orders/3/receipt", "", 409, "does not allow")
	want("POST", "/orders/3/payment", "", 201, `"status":"`)
	want("POST", "/orders/3/payment", "", 201, `"pay_time":"`)
	want("POST", "/orders/3/cancellation", "", 409, "does not allow")
	want("POST", "/orders", `{"id":4,"buyer":8,"product":44}`, 201, `"status":"pending"`)
	want("POST", "/orders/4/cancellation", "", 201, `"cancel_reason":"buyer"`)
	w.paid(1, patience)
	want("POST", "/orders/3/receipt", "", 201, `"status":"completed"`)
	servers.Eventually(t, patience, "the unpaid order is cancelled", func() bool {
		_, text := s.call("GET", "/orders/1", "")
		return strings.Contains(text, `"cancel_reason":"timeout"`)
	})
	want("POST", "/orders/1/payment", "", 409, "does not allow")
	want("POST", "/orders", `{"id":2,"buyer":8,"product":42}`, 201, `"status":"pending"`) // it is on sale again
	want("POST", "/orders/2/payment", "", 201, `"pay_time":"`)
	w.paid(2, patience)
	w.balanced(4)
	s.Stop(20 * time.Second)
}

func TestDemoSurvivesKillsAndBalances(t *testing.T) {
	tell := func(t *testing.T, args ...string) {
		t.Helper()
		story, status := programs.Run(t, "msghandler-dev", nil, append([]string{"demo", "--orders", "100"}, args...)...)
		for _, part := range []string{"kill -9", "started again", "dlq replay", "unknown event type", "The books balance"} {
			if status != 0 || !strings.Contains(story, part) {
				t.Fatalf("exit status %d, and no %q in:\n%s", status, part, story)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		tell(t)
	})
	onServers(t, func(t *testing.T, database string) {
		tell(t, "--database", database)
		if output, status := programs.Run(t, "msghandler-dev", nil, "demo", "--database", database); status != 1 ||
			!strings.Contains(output, "give an empty one") {
			t.Errorf("with a full database: exit status %d\n%s", status, output)
		}
	})
}
