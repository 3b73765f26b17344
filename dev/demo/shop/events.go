package shop

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer/envelope"
)

// OrderCreated is the payload of ORDER_CREATED. Amounts of money are in cents everywhere.
type OrderCreated struct {
	OrderID   int64  `json:"orderId"`
	OrderNo   string `json:"orderNo"`
	BuyerID   int64  `json:"buyerId"`
	SellerID  int64  `json:"sellerId"`
	ProductID int64  `json:"productId"`
	Quantity  int64  `json:"quantity"`
	Price     int64  `json:"price"`
}

// OrderPaid is the payload of ORDER_PAID.
type OrderPaid struct {
	OrderID int64     `json:"orderId"`
	OrderNo string    `json:"orderNo"`
	PayTime time.Time `json:"payTime"`
	Amount  int64     `json:"amount"`
}

// OrderStatusChanged is the payload of ORDER_STATUS_CHANGED: from paid to shipped, and from shipped to completed.
type OrderStatusChanged struct {
	OrderID   int64     `json:"orderId"`
	OrderNo   string    `json:"orderNo"`
	OldStatus Status    `json:"oldStatus"`
	NewStatus Status    `json:"newStatus"`
	ChangedAt time.Time `json:"changedAt"`
}

// OrderTimeout is the payload of ORDER_TIMEOUT, which arrives when the time to pay is over.
type OrderTimeout struct {
	OrderID    int64     `json:"orderId"`
	OrderNo    string    `json:"orderNo"`
	CreateTime time.Time `json:"createTime"`
}

// Events are the event types of the shop. An event of another type, without its data or about another order than its
// payload is refused by Events.Decode, and goes to the dead letters at once.
var Events = envelope.Registry{NumericAggregateIDs: true}

// The event types.
var (
	Created = envelope.Register(&Events, ofOrder("ORDER_CREATED", func(p OrderCreated) int64 { return p.OrderID },
		func(p OrderCreated) error {
			if p.Quantity < 1 || p.Price < 0 {
				return fmt.Errorf("the quantity is %d and the price %d", p.Quantity, p.Price)
			}
			return nil
		}))
	PaidEvent = envelope.Register(&Events, ofOrder("ORDER_PAID", func(p OrderPaid) int64 { return p.OrderID }, nil))
	Changed   = envelope.Register(&Events, ofOrder("ORDER_STATUS_CHANGED",
		func(p OrderStatusChanged) int64 { return p.OrderID }, OrderStatusChanged.check))
	TimedOut = envelope.Register(&Events, ofOrder("ORDER_TIMEOUT", func(p OrderTimeout) int64 { return p.OrderID }, nil))
)

func ofOrder[P any](name string, id func(P) int64, check func(P) error) envelope.Spec[P] {
	return envelope.Spec[P]{
		Type: name, AggregateType: "ORDER", Check: check,
		AggregateID: func(p P) string { return strconv.FormatInt(id(p), 10) },
	}
}

// check knows the two changes that are announced.
func (p OrderStatusChanged) check() error {
	if p.OldStatus == Paid && p.NewStatus == Shipped || p.OldStatus == Shipped && p.NewStatus == Completed {
		return nil
	}
	return errors.New("no order changes from " + string(p.OldStatus) + " to " + string(p.NewStatus))
}

// The exchange, and the routing keys of the events on it.
const (
	Exchange        = "order.events.exchange"
	KeyCreated      = "order.created"
	KeyPaid         = "order.paid"
	KeyChanged      = "order.status.changed"
	KeyTimeout      = "order.timeout"
	KeyTimeoutDelay = "order.timeout.delay"
	KeyDeadLetter   = "order.dlq"
)

// The queues.
const (
	InventoryQueue    = "inventory.update.queue"
	FulfillmentQueue  = "order.fulfillment.queue"
	SyncQueue         = "order.status.sync.queue"
	TimeoutQueue      = "order.timeout.queue"
	TimeoutDelayQueue = "order.timeout.delay.queue"
	DeadLetterQueue   = "order.dlq.queue"
)

// PayWithin is how long an order may stay unpaid, unless a program is told otherwise.
const PayWithin = 15 * time.Minute

// Retries are the delays after a failure of a consumer.
var Retries = []time.Duration{time.Second, 10 * time.Second, time.Minute}

// Topology is the whole topology of the shop. A new order's ORDER_TIMEOUT waits in TimeoutDelayQueue for the time to
// pay. Failed events wait for each of retries; after the last, and at once if they can never be handled, they go to
// the one DeadLetterQueue.
func Topology(payWithin time.Duration, retries []time.Duration) *rabbitmqconsumer.Topology {
	return &rabbitmqconsumer.Topology{
		Exchange: Exchange, DeadLetterKey: KeyDeadLetter, DeadLetterQueue: DeadLetterQueue, Delays: retries,
		Queues: []rabbitmqconsumer.TopologyQueue{
			{Name: InventoryQueue, BindingKeys: []string{KeyCreated}},
			{Name: FulfillmentQueue, BindingKeys: []string{KeyPaid}},
			{Name: SyncQueue, BindingKeys: []string{KeyChanged}},
			{Name: TimeoutQueue, BindingKeys: []string{KeyTimeout}, Hold: &rabbitmqconsumer.Hold{
				Queue: TimeoutDelayQueue, BindingKey: KeyTimeoutDelay, Delay: payWithin, ReleaseKey: KeyTimeout,
			}},
		},
	}
}
