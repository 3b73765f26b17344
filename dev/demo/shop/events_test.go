package shop_test

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer/envelope"
	"github.com/msghandler/msghandler/dev/demo/shop"
)

// The form of the events is written out here, because other programs read the events.
func TestEventsHaveTheirForm(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 25, 14, 0, 0, 0, time.UTC)
	head := envelope.Head{ID: "e-1", OccurredAt: at, TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}
	written := map[string][]byte{}
	write := func(kind string, body []byte, err error) {
		if err != nil {
			t.Fatal(err)
		}
		written[kind] = body
	}
	body, err := shop.Created.Marshal(head, shop.OrderCreated{
		OrderID: 7, OrderNo: "SH7", BuyerID: 1, SellerID: 2, ProductID: 3, Quantity: 1, Price: 530,
	})
	write("ORDER_CREATED", body, err)
	body, err = shop.PaidEvent.Marshal(head, shop.OrderPaid{OrderID: 7, OrderNo: "SH7", PayTime: at, Amount: 530})
	write("ORDER_PAID", body, err)
	body, err = shop.Changed.Marshal(head, shop.OrderStatusChanged{
		OrderID: 7, OrderNo: "SH7", OldStatus: shop.Paid, NewStatus: shop.Shipped, ChangedAt: at,
	})
	write("ORDER_STATUS_CHANGED", body, err)
	body, err = shop.TimedOut.Marshal(head, shop.OrderTimeout{OrderID: 7, OrderNo: "SH7", CreateTime: at})
	write("ORDER_TIMEOUT", body, err)
	for kind, payload := range map[string]string{
		"ORDER_CREATED": `"buyerId":1,"sellerId":2,"productId":3,"quantity":1,"price":530`,
		"ORDER_PAID":    `"payTime":"2026-11-25T14:00:00Z","amount":530`,
		"ORDER_STATUS_CHANGED": `"oldStatus":"paid","newStatus":"shipped",` +
			`"changedAt":"2026-11-25T14:00:00Z"`,
		"ORDER_TIMEOUT": `"createTime":"2026-11-25T14:00:00Z"`,
	} {
		want := `{"eventId":"e-1","eventType":"` + kind + `","aggregateType":"ORDER","aggregateId":7,` +
			`"occurredAt":"2026-11-25T14:00:00Z","traceId":"4bf92f3577b34da6a3ce929d0e0e4736",` +
			`"payload":{"orderId":7,"orderNo":"SH7",` + payload + `}}`
		if got := string(written[kind]); got != want {
			t.Errorf("written %s\nwant    %s", got, want)
		}
	}
}

// A status changes from paid to shipped and from shipped to completed; no other change is announced.
func TestOnlyTwoChangesAreAnnounced(t *testing.T) {
	t.Parallel()
	all := []shop.Status{shop.Pending, shop.Paid, shop.Shipped, shop.Completed, shop.Cancelled}
	for _, from := range all {
		for _, to := range all {
			_, err := shop.Changed.Marshal(envelope.Head{ID: "e-1"}, shop.OrderStatusChanged{
				OrderID: 7, OrderNo: "SH7", OldStatus: from, NewStatus: to, ChangedAt: time.Now(),
			})
			known := from == shop.Paid && to == shop.Shipped || from == shop.Shipped && to == shop.Completed
			if (err == nil) != known {
				t.Errorf("from %s to %s: %v", from, to, err)
			}
		}
	}
}
