package faults

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// Publishes that RabbitMQ refuses.
var refusalRows = []row{
	{name: "F22_binding", copies: true, fault: withNeighbour(unbind), judge: othersGoOn("refused")},
	{name: "F22_exchange", copies: true, fault: withNeighbour(deleteExchange), judge: othersGoOn("refused")},
	{name: "F22_permission", copies: true, fault: revoke(allReadyThenAMoment), judge: othersGoOn("refused")},
	{
		name: "F27", copies: true, parks: true, fault: sendAstray, judge: deadAndRetried,
		world: options{settings: []string{twoRetries, leaseOfCopies, "MSGHANDLER_SEND_DEAD_LETTER_EXCHANGE=" + deadLetters}},
	},
	{name: "F29", copies: true, world: options{consume: declareShort}, fault: fillQueue, judge: felt("refused")},
}

const (
	// twoRetries makes a message DEAD after three refusals.
	twoRetries = "MSGHANDLER_SEND_BACKOFF=200ms,500ms"
	// leaseOfCopies holds the last refusal, and the answer to the dead-letter copy after that.
	leaseOfCopies = "MSGHANDLER_SEND_LEASE=11s"
)

// unbind takes the queue's binding away and gives it back.
func unbind(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("the queue is unbound")
	w.onBroker(func(ch *amqp.Channel) error { return ch.QueueUnbind(queue, "#", exchange, nil) })
	wait(3 * time.Second)
	w.onBroker(func(ch *amqp.Channel) error { return ch.QueueBind(queue, "#", exchange, false, nil) })
	w.ledger.Fault("the queue is bound again")
}

// deleteExchange deletes the exchange, and declares and binds it again.
func deleteExchange(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("the exchange is deleted")
	w.onBroker(func(ch *amqp.Channel) error { return ch.ExchangeDelete(exchange, false, false) })
	wait(3 * time.Second)
	w.bindTo(exchange)
	w.ledger.Fault("the exchange is there again")
}

// bindTo declares an exchange and binds the load's queue to it.
func (w *world) bindTo(exchange string) {
	w.t.Helper()
	w.onBroker(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(exchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(queue, "#", exchange, false, nil)
	})
}

// revoke takes away the permission to write to the exchange, and nothing else, and gives the permission back after a
// while.
func revoke(while func(context.Context, *world, *rand.Rand)) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, random *rand.Rand) {
		pause(ctx, time.Second)
		w.ledger.Fault("no user may write to the exchange")
		w.mayWrite("^(?!" + exchange + "$)")
		// RabbitMQ remembers permissions for the life of a channel. All clients must connect again and notice the fault, so
		// the neighbour starts afterwards.
		w.broker.CloseConnections(len(w.coordinators))
		servers.Eventually(w.t, patience, "a message is refused", func() bool { return w.published("refused") > 0 })
		while(ctx, w, random)
		w.mayWrite(".*")
		w.ledger.Fault("all users may write to the exchange again")
	}
}

func aMoment(context.Context, *world, *rand.Rand) { wait(3 * time.Second) }

func allReadyThenAMoment(ctx context.Context, w *world, random *rand.Rand) {
	w.allReady()
	withNeighbour(aMoment)(ctx, w, random)
}

func (w *world) mayWrite(pattern string) {
	w.t.Helper()
	path := "/api/permissions/" + url.PathEscape(w.broker.Name) + "/guest"
	permissions := map[string]string{"configure": ".*", "read": ".*", "write": pattern}
	if err := w.broker.Management().Call(http.MethodPut, path, permissions, nil); err != nil {
		w.t.Fatal(err)
	}
}

const (
	astray = "astray"
	// deadLetters is a name on every kind of broker: no dot for NATS.
	deadLetters = "faults-dead"
)

// strays is what a broker does for messages to an exchange that does not exist.
type strays interface {
	// makeDeadLetters makes the dead-letter exchange.
	makeDeadLetters(w *world)
	// deadLetters are the reasons in the copies there, by message.
	deadLetters(w *world) (reasons map[string]string)
	// unknown is in the reason of a message whose exchange does not exist.
	unknown() string
	// serve makes an exchange, and has its messages consumed like those of the load.
	serve(w *world, exchange string)
}

func (w *world) strays() strays {
	if broker, is := w.stream.(strays); is {
		return broker
	}
	return rabbitStrays{}
}

// sendAstray sends messages to an exchange that does not exist, among the good ones of the load.
func sendAstray(ctx context.Context, w *world, _ *rand.Rand) {
	w.strays().makeDeadLetters(w)
	w.ledger.Fault("messages go to an exchange that does not exist")
	newSender(w, astray, astray).run(ctx, w, 100*time.Millisecond)
}

// deadAndRetried demands that exactly the stray messages are dead, after their attempts and with a copy each; that no
// other message was touched; and that the stray messages are delivered when their exchange is there and an operator
// retries.
func deadAndRetried(t *testing.T, w *world, l *load, end End) {
	const attempts = 3 // the first attempt, and one more for each entry of MSGHANDLER_SEND_BACKOFF
	sent := w.ledger.Copies(astray)
	broker := w.strays()
	copies, refused := broker.deadLetters(w), w.published("refused")
	t.Logf("%d went astray, %d are dead, %d refusals, %d dead-letter copies", len(sent), len(end.Parked), refused,
		len(copies))
	if refused != attempts*len(sent) {
		t.Errorf("%d refusals of %d messages, not %d of each", refused, len(sent), attempts)
	}
	for key := range sent {
		if !end.Parked[key] {
			t.Errorf("%s is not dead", key)
		}
		if reason := copies[key]; !strings.Contains(reason, broker.unknown()) {
			t.Errorf("the dead-letter copy of %s says %q", key, reason)
		}
	}
	others := len(end.Parked) - len(sent)
	if flagged, _ := w.ledger.Flagged(); others != 0 || flagged > 0 {
		t.Errorf("%d others are dead and %d were sent again", others, flagged)
	}

	broker.serve(w, astray)
	w.retryDead()
	end = w.drain(patience)
	end.CopiesExplained = true
	row{copies: true}.verdict(t, w, l, end)
	for key, got := range w.ledger.Copies(astray) {
		if len(got) != 1 || got[0].Attempt <= attempts {
			t.Errorf("%s was retried by an operator, and came as %+v", key, got)
		}
	}
}

// rabbitStrays are the strays of RabbitMQ.
type rabbitStrays struct{}

func (rabbitStrays) unknown() string { return "NOT_FOUND" }

func (rabbitStrays) serve(w *world, exchange string) { w.bindTo(exchange) }

func (rabbitStrays) makeDeadLetters(w *world) {
	w.onBroker(func(ch *amqp.Channel) error {
		if err := ch.ExchangeDeclare(deadLetters, amqp.ExchangeFanout, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclare(deadLetters, true, false, false, false, nil); err != nil {
			return err
		}
		return ch.QueueBind(deadLetters, "", deadLetters, false, nil)
	})
}

func (rabbitStrays) deadLetters(w *world) map[string]string {
	reasons := map[string]string{}
	w.onBroker(func(ch *amqp.Channel) error {
		for {
			d, more, err := ch.Get(deadLetters, true)
			if err != nil || !more {
				return err
			}
			reasons[d.AppId+"/"+d.MessageId], _ = d.Headers[deadReason].(string)
		}
	})
	return reasons
}

// deadReason is the header of a dead-letter copy with the broker's refusal.
const deadReason = "msghandler-dead-reason"

// retryDead is the operator's retry after the repair.
func (w *world) retryDead() {
	w.t.Helper()
	w.ledger.Fault("an operator retries the dead messages")
	request := &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{State: pb.State_STATE_DEAD}},
		Reason:    "the exchange is there",
	}
	if _, err := w.admin().RetryMessages(w.t.Context(), request); err != nil {
		w.t.Fatal(err)
	}
}

// admin is the operators' way to a coordinator, until the test ends.
func (w *world) admin() adminv1.AdminServiceClient {
	w.t.Helper()
	conn, err := grpc.NewClient(w.coordinators[0].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return adminv1.NewAdminServiceClient(conn)
}

// declareShort makes a queue that refuses messages beyond its length. The fault consumes from the queue.
func declareShort(w *world) {
	w.onBroker(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{
			amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.QueueMaxLenArg: int64(50),
			amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish,
		})
		return err
	})
	w.bindTo(exchange)
}

// fillQueue keeps the queue full for as long as the load lasts, and longer until a message is seen to wait for the
// queue.
func fillQueue(ctx context.Context, w *world, _ *rand.Rand) {
	w.ledger.Fault("without consumers the queue fills")
	<-ctx.Done()
	admin, request := w.admin(), &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: pb.State_STATE_SENDABLE},
		PageSize: 1000,
	}
	servers.Eventually(w.t, patience, "a message waits because of a nack", func() bool {
		page, err := admin.ListMessages(w.t.Context(), request)
		return err == nil && slices.ContainsFunc(page.GetRecords(), func(r *adminv1.MessageRecord) bool {
			return strings.Contains(r.GetLastError(), "nack")
		})
	})
	consume(w, queue, nil)
	w.ledger.Fault("the queue is consumed")
}
