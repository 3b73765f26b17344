package shop_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/dev/demo/orders"
	"github.com/msghandler/msghandler/dev/demo/shop"
)

// An order is created: its row is in the outbox, ORDER_CREATED is on the wire, and the inventory handles it.
func TestCreatedOrderReachesTheInventory(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.place(1001, 3)
		for _, id := range []string{"1001-created", "1001-timeout"} {
			if n := w.rows(id); n != 1 {
				w.Errorf("%d rows of %s in the outbox", n, id)
			}
		}
		if o := w.look(1001); o.Status != shop.Pending || o.OrderNo != "SH0000001001" || w.product(3) != shop.Sold {
			w.Errorf("%+v, product %s", o, w.product(3))
		}
		d := w.get(shop.InventoryQueue)
		var wire struct {
			EventID       string          `json:"eventId"`
			EventType     string          `json:"eventType"`
			AggregateType string          `json:"aggregateType"`
			AggregateID   json.RawMessage `json:"aggregateId"`
			OccurredAt    time.Time       `json:"occurredAt"`
			Payload       json.RawMessage `json:"payload"`
		}
		w.must(json.Unmarshal(d.Body, &wire))
		const payload = `{"orderId":1001,"orderNo":"SH0000001001","buyerId":7,"sellerId":4,"productId":3,` +
			`"quantity":1,"price":530}`
		if wire.EventID != d.MessageId || wire.EventType != "ORDER_CREATED" || wire.AggregateType != "ORDER" ||
			string(wire.AggregateID) != "1001" || string(wire.Payload) != payload || time.Since(wire.OccurredAt) > patience ||
			d.Exchange != "order.events.exchange" || d.RoutingKey != "order.created" || d.AppId != "orders" {
			w.Errorf("on the wire by %s: %s", d.RoutingKey, d.Body)
		}
		w.eventually("the time-out waits", func() bool { return w.depth(shop.TimeoutDelayQueue) == 1 })
		w.consume(nil)
		w.publish(shop.KeyCreated, d.MessageId, d.Body)
		w.eventually("the product is reserved", func() bool { return w.effects().Inventory == 1 })
	})
}

// Payment, shipment and receipt are announced, and each change of the status is shown to the buyer.
func TestStatusChangesAreSynced(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.consume(nil)
		w.place(1, 1)
		w.must(w.orders.Pay(w.Context(), 1, orders.NoFailure))
		w.must(w.orders.Pay(w.Context(), 1, orders.NoFailure)) // a repeated call
		view := func() (status shop.Status) {
			err := w.db.QueryRowContext(w.Context(), `SELECT status FROM demo_order_views WHERE order_id = 1`).Scan(&status)
			if err != nil && !errors.Is(err, sql.ErrNoRows) {
				w.Fatal(err)
			}
			return status
		}
		w.eventually("the buyer sees the shipment", func() bool { return view() == shop.Shipped })
		if o := w.look(1); o.Status != shop.Shipped || o.PayTime == nil {
			w.Errorf("%+v", o)
		}
		if err := w.orders.Cancel(w.Context(), 1); !errors.Is(err, shop.ErrStatus) {
			w.Errorf("cancelled after the shipment: %v", err)
		}
		w.must(w.orders.Complete(w.Context(), 1))
		w.eventually("the buyer sees the end", func() bool { return view() == shop.Completed })
		if e := w.effects(); e.Shipments != 1 || e.Views != 1 || e.Copies != 0 {
			w.Errorf("%+v", e)
		}
	})
}

// All events of a buyer's call have the call's trace, and so has the event that the fulfilment announces.
func TestEventsCarryTraceOfTheirCall(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		probe, err := w.ch.QueueDeclare("", false, true, true, false, nil)
		w.must(err)
		w.must(w.ch.QueueBind(probe.Name, "order.#", shop.Exchange, false, nil))
		w.consume(nil)
		const placing, paying = "4bf92f3577b34da6a3ce929d0e0e4736", "0af7651916cd43dd8448eb211c80319c"
		call := func(path, body, trace string) {
			r := httptest.NewRequestWithContext(w.Context(), http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
			answer := httptest.NewRecorder()
			if w.orders.Handler().ServeHTTP(answer, r); answer.Code != http.StatusCreated {
				w.Fatalf("%s: %d %s", path, answer.Code, answer.Body)
			}
		}
		call("/orders", `{"id":1,"buyer":7,"product":3}`, placing)
		call("/orders/1/payment", "", paying)
		w.eventually("the order is shipped", func() bool { return w.look(1).Status == shop.Shipped })
		w.must(w.orders.Complete(w.Context(), 1)) // a call without a trace begins one
		traces := map[string]string{}
		for range 5 {
			d := w.get(probe.Name)
			parent, _ := d.Headers["traceparent"].(string)
			var e struct{ TraceID string }
			w.must(json.Unmarshal(d.Body, &e))
			if len(e.TraceID) != 32 || !strings.HasPrefix(parent, "00-"+e.TraceID+"-") {
				w.Errorf("%s has the trace %q, and the header %q", d.MessageId, e.TraceID, parent)
			}
			traces[d.MessageId] = e.TraceID
		}
		for id, want := range map[string]string{
			"1-created": placing, "1-timeout": placing, "1-paid": paying, "1-shipped": paying,
		} {
			if traces[id] != want {
				w.Errorf("%s has the trace %q, want %q", id, traces[id], want)
			}
		}
		if last := traces["1-completed"]; last == placing || last == paying {
			w.Errorf("a call without a trace has the trace %s", last)
		}
	})
}

// An unpaid order is cancelled when its time is over, and its product is on sale again. A paid order stays.
func TestTimeoutCancelsOnlyUnpaidOrders(t *testing.T) {
	onEach(t, 5*time.Second, func(w *world) {
		w.consume(nil)
		for id := int64(1); id <= 3; id++ {
			w.place(id, id)
		}
		w.must(w.orders.Pay(w.Context(), 2, orders.NoFailure))
		w.must(w.orders.Cancel(w.Context(), 3))
		if w.product(3) != shop.OnSale {
			w.Error("a cancelled order keeps its product")
		}
		w.place(4, 3)
		w.must(w.orders.Pay(w.Context(), 4, orders.NoFailure))
		b := w.balanced() // every order had its ORDER_TIMEOUT then
		if b.ByTimeout != 1 || b.ByBuyer != 1 || b.Shipped != 2 || b.OnSale != products-2 {
			w.Errorf("%+v", b)
		}
		if o := w.look(1); o.Status != shop.Cancelled || o.CancelReason != "timeout" || w.product(1) != shop.OnSale {
			w.Errorf("%+v, product %s", o, w.product(1))
		}
		if err := w.orders.Pay(w.Context(), 1, orders.NoFailure); !errors.Is(err, shop.ErrStatus) {
			w.Errorf("paid too late: %v", err)
		}
	})
}

// The broker loses the time-outs; the sweep cancels their orders, in batches, and no other.
func TestSweepCancelsWhatTheBrokerLost(t *testing.T) {
	onEach(t, 2*time.Second, func(w *world) {
		const lost = 5
		for id := int64(1); id <= lost; id++ {
			w.place(id, id)
		}
		w.eventually("all time-outs wait or are over", func() bool {
			c, err := w.outbox.Counts(w.Context())
			w.must(err)
			return c.Waiting == 0
		})
		for _, queue := range []string{shop.TimeoutDelayQueue, shop.TimeoutQueue} {
			_, err := w.ch.QueuePurge(queue, false)
			w.must(err)
		}
		w.must(w.inTx(func(tx *sql.Tx) error { return w.shop.Pay(w.Context(), tx, 2, time.Now()) }))
		deadline := time.Now().Add(-time.Hour)
		if n, err := w.shop.CloseOverdue(w.Context(), deadline, 2); n != 0 || err != nil {
			w.Errorf("closed %d orders before their deadline, %v", n, err)
		}
		if n, err := w.shop.CloseOverdue(w.Context(), time.Now(), 2); n != 2 || err != nil {
			w.Errorf("a batch of 2 closed %d, %v", n, err)
		}
		w.eventually("the sweep closes the others", func() bool {
			_, err := w.orders.Sweep(w.Context())
			w.must(err)
			counts, err := w.shop.Counts(w.Context())
			w.must(err)
			return counts[shop.Cancelled] == lost-1 && counts[shop.Pending] == 0
		})
		if o := w.look(5); o.CancelReason != shop.ByTimeout || w.product(5) != shop.OnSale || w.product(2) != shop.Sold {
			w.Errorf("%+v", o)
		}
	})
}

// The sweep runs in the background. No consumer runs, so that nothing else cancels the order.
func TestSweepRunsByItself(t *testing.T) {
	onEach(t, time.Second, func(w *world) {
		w.place(1, 1)
		w.eventually("the order is cancelled", func() bool { return w.look(1).Status == shop.Cancelled })
		if w.look(1).CancelReason != "timeout" || w.product(1) != "on_sale" {
			w.Errorf("%+v, product %s", w.look(1), w.product(1))
		}
	}, func(c *orders.Config) { c.SweepEvery = 100 * time.Millisecond })
}

// A business transaction that fails leaves no row and sends nothing.
func TestFailedTransactionSendsNothing(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.place(1, 1)
		w.get(shop.InventoryQueue)
		err := w.orders.Place(w.Context(), orders.Order{ID: 2, Buyer: 8, Product: 1})
		if !errors.Is(err, shop.ErrSold) {
			w.Errorf("a sold product: %v", err)
		}
		if err := w.orders.Pay(w.Context(), 1, orders.Declined); !errors.Is(err, orders.ErrDeclined) {
			w.Errorf("a declined payment: %v", err)
		}
		if _, err := w.shop.Look(w.Context(), 2); !errors.Is(err, shop.ErrNoOrder) || w.look(1).Status != shop.Pending {
			w.Errorf("order 2: %v; order 1: %+v", err, w.look(1))
		}
		for _, id := range []string{"2-created", "2-timeout", "1-paid"} {
			if n := w.rows(id); n != 0 {
				w.Errorf("%d rows of %s in the outbox", n, id)
			}
		}
		w.must(w.orders.Pay(w.Context(), 1, orders.NoFailure)) // a later payment is possible, and the next message
		w.get(shop.FulfillmentQueue)
		if n := w.depth(shop.InventoryQueue) + w.depth(shop.FulfillmentQueue); n != 0 {
			w.Errorf("%d events of failed transactions", n)
		}
	})
}

// A committed order has its row though the broker refuses the event: it is retried, and FAILED after the last try.
func TestRefusedDispatchEndsFailed(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.must(w.ch.QueueUnbind(shop.InventoryQueue, shop.KeyCreated, shop.Exchange, nil))
		w.place(1, 1)
		w.eventually("the message has failed", func() bool {
			c, err := w.outbox.Counts(w.Context())
			w.must(err)
			return c.Failed == 1 && c.Waiting == 0
		})
		failures, err := w.outbox.Failures(w.Context(), 10)
		if err != nil || len(failures) != 1 || failures[0].ID != "1-created" || failures[0].Attempts != 4 {
			w.Errorf("%+v, %v", failures, err)
		}
		if w.rows("1-created") != 1 || w.look(1).Status != shop.Pending {
			w.Error("the committed order or its row is gone")
		}
		if n := w.depth(shop.TimeoutDelayQueue); n != 1 {
			w.Errorf("%d messages wait for the time-out, though another message failed", n)
		}
	})
}

// The pauses of the shop are exactly 5 s, 30 s and 2 min. The test moves the message's time instead of waiting.
func TestRefusedDispatchWaitsExactly(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.must(w.ch.QueueUnbind(shop.InventoryQueue, shop.KeyCreated, shop.Exchange, nil))
		w.place(1, 1)
		const row = ` WHERE producer = 'orders' AND routing_key = 'order.created' AND lock_until IS NULL`
		for n, pause := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute} {
			var attempts, waits int64
			w.eventually("the message is refused", func() bool {
				err := w.db.QueryRowContext(w.Context(), `SELECT attempts, due_at - updated_at FROM msghandler_markers`+row).
					Scan(&attempts, &waits)
				if !errors.Is(err, sql.ErrNoRows) { // a relay holds the message
					w.must(err)
				}
				return attempts == int64(n+1)
			})
			if waits != pause.Milliseconds() {
				w.Fatalf("after %d refusals the message waits for %d ms, want %v", attempts, waits, pause)
			}
			_, err := w.db.ExecContext(w.Context(), `UPDATE msghandler_markers SET due_at = updated_at`+row)
			w.must(err)
		}
		w.eventually("the message has failed", func() bool {
			c, err := w.outbox.Counts(w.Context())
			w.must(err)
			return c.Failed == 1
		})
	}, func(c *orders.Config) { c.Backoff = nil })
}

// An event that is delivered twice has one effect.
func TestDuplicateHasNoSecondEffect(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.place(1, 1)
		w.must(w.orders.Pay(w.Context(), 1, orders.NoFailure))
		created, paid := w.get(shop.InventoryQueue), w.get(shop.FulfillmentQueue)
		w.consume(nil)
		for range 3 {
			w.publish(shop.KeyCreated, created.MessageId, created.Body)
			w.publish(shop.KeyPaid, paid.MessageId, paid.Body)
		}
		w.eventually("four copies are dropped", func() bool { return w.effects().Copies == 4 })
		w.eventually("the buyer sees the shipment", func() bool { return w.effects().Views == 1 })
		if e := w.effects(); e.Inventory != 1 || e.Shipments != 1 || w.rows("1-shipped") != 1 {
			w.Errorf("%+v", e)
		}
	})
}

// An event that fails again and again reaches the dead letters, and its replay by hand ships the order.
func TestFailureIsReplayedFromDeadLetter(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		var back atomic.Bool
		var tries atomic.Int32
		w.consume(func(context.Context, int64) error {
			if tries.Add(1); !back.Load() {
				return errors.New("no courier")
			}
			return nil
		})
		w.place(1, 1)
		w.must(w.orders.Pay(w.Context(), 1, orders.NoFailure))
		w.eventually("a dead letter", func() bool { return w.depth(shop.DeadLetterQueue) == 1 })
		if n := tries.Load(); n != 3 || w.look(1).Status != shop.Paid || w.rows("1-shipped") != 0 {
			w.Errorf("%d tries, %+v", n, w.look(1))
		}
		dead, err := rabbitmqconsumer.NewDeadLetters(w.amqp, nil, shop.DeadLetterQueue)
		w.must(err)
		letter, err := dead.Show(w.Context(), "orders/1-paid")
		if err != nil || letter.Queue != shop.FulfillmentQueue || letter.RoutingKey != shop.KeyPaid ||
			letter.Reason != "no courier" {
			w.Errorf("%+v, %v", letter, err)
		}
		back.Store(true)
		if n, err := dead.Replay(w.Context(), consumer.ToExchanges(shop.Exchange), "orders/1-paid"); n != 1 || err != nil {
			w.Errorf("replayed %d, %v", n, err)
		}
		w.eventually("the order is shipped", func() bool { return w.look(1).Status == shop.Shipped })
		if w.depth(shop.DeadLetterQueue) != 0 {
			w.Error("the letter is still there")
		}
	})
}

// An event that can never be handled goes to the dead letters at once, and the log says why.
func TestUnrecoverableEventIsImmediatelyDead(t *testing.T) {
	onEach(t, time.Hour, func(w *world) {
		w.consume(nil)
		w.place(1, 1)
		const event = `{"eventId":"%s","eventType":"%s","aggregateType":"ORDER","aggregateId":%d,"payload":%s}`
		const timeout = `{"orderId":1,"orderNo":"SH1","createTime":"2026-11-25T00:00:00Z"}`
		const changed = `{"orderId":1,"orderNo":"SH1","oldStatus":"paid","newStatus":"shipped",` +
			`"changedAt":"2026-11-25T00:00:00Z"}`
		cases := []struct{ id, key, kind, payload, why string }{
			{"unknown", shop.KeyPaid, "ORDER_EATEN", timeout, "unknown event type"},
			{"missing", shop.KeyTimeout, "ORDER_TIMEOUT", `{"orderId":1,"orderNo":"SH1"}`, "lacks createTime"},
			{"another", shop.KeyTimeout, "ORDER_TIMEOUT", strings.Replace(timeout, ":1,", ":2,", 1), "its payload about"},
			{"misplaced", shop.KeyCreated, "ORDER_TIMEOUT", timeout, "not for this queue"},
			{
				"unpaid", shop.KeyPaid, "ORDER_PAID",
				`{"orderId":1,"orderNo":"SH1","payTime":"2026-11-25T00:00:00Z","amount":5}`, "order 1 is pending",
			},
			{"unshipped", shop.KeyChanged, "ORDER_STATUS_CHANGED", changed, "its event says that it is shipped"},
		}
		for _, c := range cases {
			w.publish(c.key, c.id, fmt.Appendf(nil, event, c.id, c.kind, 1, c.payload))
		}
		w.eventually("all are dead letters", func() bool { return w.depth(shop.DeadLetterQueue) == len(cases) })
		dead, err := rabbitmqconsumer.NewDeadLetters(w.amqp, nil, shop.DeadLetterQueue)
		w.must(err)
		letters, err := dead.List(w.Context(), 10)
		w.must(err)
		reasons := map[string]consumer.Letter{}
		for _, l := range letters {
			reasons[l.ID] = l
		}
		for _, c := range cases {
			if l := reasons[c.id]; !strings.Contains(l.Reason, c.why) || l.Retries != 0 {
				w.Errorf("%s: %q after %d retries, want %q", c.id, l.Reason, l.Retries, c.why)
			}
			text := "consuming failed; message rejected"
			if c.id == "unknown" {
				text = "unsupported event type; message rejected"
			}
			if said := w.log.about(c.id); !strings.Contains(said, c.why) || !strings.Contains(said, text) {
				w.Errorf("%s: the log says %q, want %q because of %q", c.id, said, text, c.why)
			}
		}
		if w.look(1).Status != shop.Pending {
			w.Error("an event that was rejected had an effect")
		}
	})
}
