package amqpconformance

import (
	"context"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func confirms(f *fixture) {
	const n = 5000
	f.queue("q", nil)
	f.must(f.ch.Confirm(false))
	pending := make([]*amqp.DeferredConfirmation, n)
	for i := range pending {
		var err error
		pending[i], err = f.ch.PublishWithDeferredConfirm("", "q", true, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: strconv.Itoa(i), Body: payload(256)})
		f.must(err)
	}
	for i, confirm := range pending {
		if !f.confirmed(confirm) {
			f.Fatalf("publish %d was not acknowledged", i)
		}
	}
	ch := f.channel()
	f.must(ch.Qos(200, 0, false))
	deliveries := f.consume(ch, "q")
	for i := range n {
		m := next(f, "delivery", deliveries)
		if m.MessageId != strconv.Itoa(i) {
			f.Fatalf("got message %s in place of %d", m.MessageId, i)
		}
		f.must(m.Ack(false))
	}
}

// drain gives the ids of all messages that have been returned by now.
func drain(returns <-chan amqp.Return, into map[string]bool) (badCode bool) {
	for {
		select {
		case r := <-returns:
			into[r.MessageId] = true
			badCode = badCode || r.ReplyCode != amqp.NoRoute
		default:
			return badCode
		}
	}
}

// returnThenAck: an unroutable message is returned and then acknowledged nevertheless, in this order. The publisher
// relies on the order.
func returnThenAck(f *fixture) {
	f.queue("q", nil)
	f.must(f.ch.Confirm(false))
	returns := f.ch.NotifyReturn(make(chan amqp.Return, 300))
	returned := map[string]bool{}
	for i := range 300 {
		routable := i%3 == 0
		key := "nowhere"
		if routable {
			key = "q"
		}
		id := strconv.Itoa(i)
		confirm, err := f.ch.PublishWithDeferredConfirm("", key, true, false, amqp.Publishing{MessageId: id})
		f.must(err)
		if !f.confirmed(confirm) {
			f.Fatalf("publish %s was not acknowledged", id)
		}
		if drain(returns, returned) {
			f.Fatal("returned with another code than 312")
		}
		if returned[id] == routable {
			f.Fatalf("publish %s, routable %v: returned %v when it was acknowledged", id, routable, returned[id])
		}
	}
}

func returnsInAPipeline(f *fixture) {
	const n = 5000
	f.queue("q", nil)
	f.must(f.ch.Confirm(false))
	returns := f.ch.NotifyReturn(make(chan amqp.Return, n))
	pending := make(chan *amqp.DeferredConfirmation, n)
	go func() {
		defer close(pending)
		for i := range n {
			key := "q"
			if i%10 == 0 {
				key = "nowhere"
			}
			confirm, err := f.ch.PublishWithDeferredConfirm("", key, true, false,
				amqp.Publishing{MessageId: strconv.Itoa(i)})
			if err != nil {
				f.Error(err)
				return
			}
			pending <- confirm
		}
	}()
	returned := map[string]bool{}
	i := 0
	for confirm := range pending {
		acked := f.confirmed(confirm)
		drain(returns, returned)
		if !acked || returned[strconv.Itoa(i)] != (i%10 == 0) {
			f.Fatalf("publish %d: acknowledged %v, returned %v", i, acked, returned[strconv.Itoa(i)])
		}
		i++
	}
}

func manyChannels(f *fixture) {
	const channels, each = 8, 500
	f.queue("q", nil)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var running sync.WaitGroup
	for range channels {
		ch := f.channel()
		running.Go(func() {
			if err := publishMany(ctx, ch, each); err != nil {
				f.Error(err)
			}
		})
	}
	running.Wait()
	f.eventuallyReady("q", channels*each)
}

func publishMany(ctx context.Context, ch *amqp.Channel, n int) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	var pending []*amqp.DeferredConfirmation
	for range n {
		confirm, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{Body: payload(256)})
		if err != nil {
			return err
		}
		pending = append(pending, confirm)
	}
	for _, confirm := range pending {
		if _, err := confirm.WaitContext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// largeMessages have about the size of a frame, or need many frames.
func largeMessages(f *fixture) {
	f.queue("q", nil)
	for _, size := range []int{0, 1, 131072 - 9, 131072 - 8, 131072 - 7, 131072, 1 << 20, 8 << 20} {
		if !f.publish("", "q", amqp.Publishing{DeliveryMode: amqp.Persistent, Body: payload(size)}) {
			f.Fatalf("%d octets were not acknowledged", size)
		}
		if m := f.fetch("q"); len(m.Body) != size {
			f.Fatalf("%d octets became %d", size, len(m.Body))
		}
	}
}

func propertiesSurvive(f *fixture) {
	f.queue("q", nil)
	sent := amqp.Publishing{
		Headers: amqp.Table{
			"int": int32(1), "long": int64(1) << 40, "text": "x", "yes": true, "double": 0.5, "nothing": nil,
			"octets": []byte{0, 1}, "time": time.Unix(1700000000, 0), "decimal": amqp.Decimal{Scale: 2, Value: 314},
			"table": amqp.Table{"n": int64(5)}, "list": []any{"p", int64(2), amqp.Table{"q": "r"}},
		},
		ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: amqp.Persistent, Priority: 3,
		CorrelationId: "correlation", ReplyTo: "reply", MessageId: "id", Timestamp: time.Unix(1700000000, 0),
		Type: "type", UserId: "guest", AppId: "app", Body: []byte("body"),
	}
	f.publish("", "q", sent)
	f.expectSame(f.fetch("q"), sent)
}

func (f *fixture) expectSame(got amqp.Delivery, want amqp.Publishing) {
	f.Helper()
	have := amqp.Publishing{
		ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode,
		Priority: got.Priority, CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, MessageId: got.MessageId,
		Timestamp: got.Timestamp, Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
		Headers: got.Headers,
	}
	f.expectEqual("message", have, want)
}
