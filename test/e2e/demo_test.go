package e2e

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/msghandler/msghandler/test/servers"
)

// onServers runs a test with a database on each of the servers, named as the demos name their databases.
func onServers(t *testing.T, test func(t *testing.T, database string)) {
	t.Run("postgresql", func(t *testing.T) { test(t, servers.PostgreSQL(t).DSN) })
	t.Run("mariadb", func(t *testing.T) {
		dsn, err := mysql.ParseDSN(servers.MariaDB(t).DSN)
		if err != nil {
			t.Fatal(err)
		}
		test(t, "mariadb://"+dsn.User+"@"+dsn.Addr+"/"+dsn.DBName)
	})
}

// Both services have their data on a database server, and each process is killed once while orders flow.
func TestDemosOnDatabaseServers(t *testing.T) {
	const n = 300
	onServers(t, func(t *testing.T, database string) {
		w := newWorld(t)
		w.shared = database
		w.startCoordinators(1)
		payments := w.startPayments()
		listen, file := servers.Addresses(t, 1)[0], w.writeOrders(n)
		orders := w.startOrders(file, "--listen", listen, "--parallel", "8")

		w.paid(n/5, patience)
		payments.kill()
		w.startPayments()
		w.paid(n*2/5, patience)
		w.coordinators[0].kill()
		w.restart(w.coordinators[0])
		w.paid(n*3/5, patience)
		orders.kill()
		w.settled(w.startOrders(file, "--listen", listen), n)
		if b := w.books(); b.Paid < n*3/5 {
			t.Errorf("only %d of %d orders were paid", b.Paid, n)
		}
	})
}

// An order is placed over HTTP and paid too late, another in time, and a third finds no stock.
func TestOrdersOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1)
	w.startPayments()
	address := servers.Addresses(t, 1)[0]
	service := w.startOrders("/dev/null", "--http", address, "--pay-within", "5s")
	service.says("taking orders", 20*time.Second)
	call := func(method, path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	want := func(method, path, body string, status int, part string) {
		t.Helper()
		if got, text := call(method, path, body); got != status || !strings.Contains(text, part) {
			t.Errorf("%s %s: %d %s, want %d and %q", method, path, got, text, status, part)
		}
	}
	want("POST", "/orders", `{"id":"late","items":[{"sku":"teapot","quantity":20}]}`, 201,
		`"state":"unpaid","amount_cents":98000`)
	want("POST", "/orders", `{"id":"none","items":[{"sku":"tea","quantity":1},{"sku":"teapot","quantity":1}]}`, 409,
		"out of stock")
	want("GET", "/orders/none", "", 404, "no such order")
	want("POST", "/orders", `{"id":"soon","items":[{"sku":"tea","quantity":2}]}`, 201, `"amount_cents":1590`)
	want("POST", "/orders/soon/payment", "", 201, `"state":"paid"`)
	want("POST", "/orders/soon/payment", "", 201, `"state":"paid"`)
	servers.Eventually(t, patience, "the unpaid order is cancelled", func() bool {
		_, text := call("GET", "/orders/late", "")
		return strings.Contains(text, `"state":"cancelled"`)
	})
	want("POST", "/orders/late/payment", "", 409, "not unpaid")
	want("POST", "/orders", `{"id":"next","items":[{"sku":"teapot","quantity":20}]}`, 201,
		`"state":"unpaid"`) // they are back
	want("POST", "/orders/next/payment", "", 201, `"state":"paid"`)
	w.paid(2, patience)
	w.balanced(3)
	service.stop(20 * time.Second)
}

func TestDemoSurvivesKillsAndBalances(t *testing.T) {
	tell := func(t *testing.T, args ...string) {
		t.Helper()
		story, status := runProgram(t, "msghandler-demo", nil, append([]string{"--orders", "100"}, args...)...)
		for _, part := range []string{"kill -9", "started again", "The books balance"} {
			if status != 0 || !strings.Contains(story, part) {
				t.Fatalf("exit status %d, and no %q in:\n%s", status, part, story)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) { tell(t) })
	onServers(t, func(t *testing.T, database string) {
		tell(t, "--database", database)
		if output, status := runProgram(t, "msghandler-demo", nil, "--database", database); status != 1 ||
			!strings.Contains(output, "give an empty one") {
			t.Errorf("with a database that is not empty: exit status %d\n%s", status, output)
		}
	})
}
