package amqpbroker_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// Behaviour shared with RabbitMQ is tested in test/amqpconformance, against both. The tests here are about this
// broker's own behaviour.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long anything may take.
const patience = time.Minute

func start(t testing.TB, config amqpbroker.Config) *amqpbroker.Broker {
	t.Helper()
	b := amqpbroker.New(config)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func dial(t testing.TB, b *amqpbroker.Broker) *amqp.Connection {
	t.Helper()
	conn, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{Dial: b.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// confirming opens a channel in confirm mode with a queue q.
func confirming(t testing.TB, conn *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err == nil {
		_, err = ch.QueueDeclare("q", true, false, false, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func publish(t testing.TB, ch *amqp.Channel, p amqp.Publishing) *amqp.DeferredConfirmation {
	t.Helper()
	confirm, err := ch.PublishWithDeferredConfirm("", "q", true, false, p)
	if err != nil {
		t.Fatal(err)
	}
	return confirm
}

// acked waits for a confirm. The result is false for a nack, and when the channel is closed first.
func acked(t testing.TB, confirm *amqp.DeferredConfirmation) bool {
	t.Helper()
	select {
	case <-confirm.Done():
		return confirm.Acked()
	case <-time.After(patience):
		t.Fatal("neither a confirm nor the end of the channel")
		return false
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]verdictCase{
		"ack":        {verdict: amqpbroker.Ack, acked: true, stored: 1},
		"nack":       {verdict: amqpbroker.Nack},
		"close conn": {verdict: amqpbroker.CloseConn, stored: 1, cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

type verdictCase struct {
	verdict amqpbroker.Verdict
	// acked and stored are the outcome of the publishing. The publishing before it is always stored and acknowledged.
	acked  bool
	stored int
	cut    bool
}

func (c verdictCase) run(t *testing.T) {
	b := start(t, amqpbroker.Config{Judge: func(p amqpbroker.Published) amqpbroker.Verdict {
		if p.MessageID == "first" {
			return amqpbroker.Ack
		}
		return c.verdict
	}})
	conn := dial(t, b)
	ch := confirming(t, conn)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	first := publish(t, ch, amqp.Publishing{MessageId: "first"})
	second := publish(t, ch, amqp.Publishing{Body: []byte("x")})
	if !acked(t, first) {
		t.Error("the publishing before was not acknowledged")
	}
	if got := acked(t, second); got != c.acked {
		t.Errorf("acknowledged: %v", got)
	}
	if got := b.Depth("q"); got != 1+c.stored {
		t.Errorf("%d stored, want %d", got-1, c.stored)
	}
	if c.cut {
		select {
		case <-closed:
		case <-time.After(patience):
			t.Error("the channel is still open")
		}
	}
	if conn.IsClosed() != c.cut {
		t.Errorf("connection closed: %v", conn.IsClosed())
	}
}

func TestJudgeSeesThePublishing(t *testing.T) {
	t.Parallel()
	seen := make(chan amqpbroker.Published, 1)
	b := start(t, amqpbroker.Config{Judge: func(p amqpbroker.Published) amqpbroker.Verdict {
		seen <- p
		return amqpbroker.Ack
	}})
	publish(t, confirming(t, dial(t, b)), amqp.Publishing{
		MessageId: "id", AppId: "orders", ContentType: "text/plain", Timestamp: time.Unix(1700000000, 0),
		Body:    []byte("body"),
		Headers: amqp.Table{"msghandler-attempt": int64(2), "text": "x", "yes": true},
	})
	p := <-seen
	if p.RoutingKey != "q" || p.MessageID != "id" || string(p.Body) != "body" {
		t.Errorf("got %+v", p)
	}
	if p.AppID != "orders" || p.ContentType != "text/plain" || p.Timestamp.Unix() != 1700000000 {
		t.Errorf("properties %+v", p)
	}
	if p.Headers["msghandler-attempt"] != int64(2) || p.Headers["text"] != "x" || p.Headers["yes"] != true {
		t.Errorf("headers %v", p.Headers)
	}
}

// A broker that takes everything confirms messages that have no queue; a Judge may still return one as unroutable.
func TestTakeAllConfirmsWithoutAQueue(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{TakeAll: true, Judge: func(p amqpbroker.Published) amqpbroker.Verdict {
		if p.MessageID == "returned" {
			return amqpbroker.Return
		}
		return amqpbroker.Ack
	}})
	ch := confirming(t, dial(t, b))
	returned := ch.NotifyReturn(make(chan amqp.Return, 3))
	for _, id := range []string{"taken", "returned", "taken"} {
		confirm, err := ch.PublishWithDeferredConfirm("nowhere", "none", true, false, amqp.Publishing{MessageId: id})
		if err != nil {
			t.Fatal(err)
		}
		if !acked(t, confirm) {
			t.Errorf("%s is not confirmed", id)
		}
	}
	if back := <-returned; back.MessageId != "returned" || back.ReplyCode != amqp.NoRoute || len(returned) > 0 {
		t.Errorf("%+v is returned, and %d more", back, len(returned))
	}
}

// A slow judge holds up only the judged publishing.
func TestJudgeMayBlock(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b := start(t, amqpbroker.Config{Judge: func(p amqpbroker.Published) amqpbroker.Verdict {
		if p.MessageID == "slow" {
			<-release
		}
		return amqpbroker.Ack
	}})
	slow := publish(t, confirming(t, dial(t, b)), amqp.Publishing{MessageId: "slow"})
	quick := publish(t, confirming(t, dial(t, b)), amqp.Publishing{})
	if !acked(t, quick) {
		t.Error("the other one was not acknowledged")
	}
	close(release)
	if !acked(t, slow) {
		t.Error("the slow one was not acknowledged")
	}
}

// During an alarm a publishing waits, its connection is told, and the end of the alarm lets both go on.
func TestAlarmHoldsPublishings(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{})
	conn := dial(t, b)
	blocked := conn.NotifyBlocked(make(chan amqp.Blocking, 4))
	ch := confirming(t, conn)
	end := b.Alarm("low on memory")
	confirm := publish(t, ch, amqp.Publishing{})
	if alarm := <-blocked; !alarm.Active || alarm.Reason != "low on memory" {
		t.Errorf("told of %+v", alarm)
	}
	if confirm.Acked() {
		t.Error("it is confirmed during the alarm")
	}
	end()
	if alarm := <-blocked; alarm.Active {
		t.Errorf("told of %+v at the end", alarm)
	}
	if !acked(t, confirm) {
		t.Error("it is not confirmed after the alarm")
	}
}

// A broker may confirm what it forgets.
func TestJudgeForgetsConfirmedMessage(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{Judge: func(amqpbroker.Published) amqpbroker.Verdict { return amqpbroker.Forget }})
	if err := b.DeclareQueue("q"); err != nil {
		t.Fatal(err)
	}
	ch := confirming(t, dial(t, b))
	confirm, err := ch.PublishWithDeferredConfirm("", "q", true, false, amqp.Publishing{})
	if err != nil || !acked(t, confirm) {
		t.Fatalf("it is not confirmed: %v", err)
	}
	if depth := b.Depth("q"); depth != 0 {
		t.Errorf("the queue has %d messages", depth)
	}
}

func TestClosedBrokerTakesNoClients(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.Dial("", ""); !errors.Is(err, amqpbroker.ErrClosed) {
		t.Errorf("dialled a closed broker: %v", err)
	}
	if _, err := b.Listen("127.0.0.1:0"); !errors.Is(err, amqpbroker.ErrClosed) {
		t.Errorf("listens though closed: %v", err)
	}
}

func TestListenOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{})
	for _, address := range []string{":0", "0.0.0.0:0", "192.0.2.1:0", "nonsense"} {
		if got, err := b.Listen(address); err == nil {
			t.Errorf("%q: listens at %s", address, got)
		}
	}
}

func TestStrangersAreToldTheProtocol(t *testing.T) {
	t.Parallel()
	b := start(t, amqpbroker.Config{})
	conn, err := b.Dial("", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HT")); err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	buffer := make([]byte, 64)
	for {
		n, err := conn.Read(buffer)
		answer.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	if answer.String() != "AMQP\x00\x00\x09\x01" {
		t.Errorf("answered %q", answer.String())
	}
}
