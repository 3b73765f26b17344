package msghandlertest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/msghandlertest"
	"github.com/msghandler/msghandler/producer"
)

// shop is the service under test. It announces each paid order.
type shop struct {
	messages *producer.Producer
	paid     map[string]bool
}

var errDeclined = errors.New("the card was declined")

func (s *shop) pay(ctx context.Context, order string, amount int) error {
	message := producer.Message{
		ID: order, Exchange: "orders", RoutingKey: "order.paid", Body: fmt.Appendf(nil, `{"amount":%d}`, amount),
	}
	return s.messages.Send(ctx, message, func(context.Context) error {
		if amount <= 0 {
			return errDeclined
		}
		s.paid[order] = true
		return nil
	})
}

// mailer is a consumer that writes a mail for each paid order, once.
type mailer struct{ mails map[string]int }

func (m *mailer) Handle(_ context.Context, message *consumer.Message) error {
	if m.mails[message.Key()] == 0 {
		m.mails[message.Key()]++
	}
	return nil
}

// A test of a service: what it announces, what it does not, and what a consumer makes of both.
func ExampleStart() {
	testPaidOrders := func(t testing.TB) {
		c := msghandlertest.Start(t)
		s := &shop{messages: c.Producer(t, producer.Config{Name: "shop"}), paid: map[string]bool{}}

		// The Submit is lost, as if the process had died after its commit: the coordinator asks.
		c.Inject(msghandlertest.Ignore(msghandlertest.Submit))
		fmt.Println("pay:", s.pay(t.Context(), "1001", 12))
		m := c.Wait(t, msghandlertest.ByRoutingKey("order.paid"))
		fmt.Printf("published: %s %s\n", m.ID, m.Body)

		fmt.Println("pay:", errors.Is(s.pay(t.Context(), "1002", 0), errDeclined))
		c.AssertNothingPublished(t, msghandlertest.ByID("1002"))
		fmt.Println("the declined order is", c.State(t, "shop", "1002"))

		// A consumer gets some messages twice, and acts once.
		consumers := &mailer{mails: map[string]int{}}
		fmt.Println("deliver:", c.Deliver(t.Context(), consumers))
		fmt.Println("deliver a copy:", consumers.Handle(t.Context(), m.Duplicate().Delivery()))
		fmt.Println("mails:", consumers.mails)
	}
	runTest(testPaidOrders) // in your code: func TestPaidOrders(t *testing.T)
	// Output:
	// pay: <nil>
	// published: 1001 {"amount":12}
	// pay: true
	// the declined order is STATE_ROLLED_BACK
	// deliver: <nil>
	// deliver a copy: <nil>
	// mails: map[shop/1001:1]
}
