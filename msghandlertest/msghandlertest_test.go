package msghandlertest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/msghandlertest"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that may fail without failing the test that runs it.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) Helper()                  {}
func (r *recorder) Failed() bool             { r.mu.Lock(); defer r.mu.Unlock(); return len(r.failures) > 0 }
func (r *recorder) Output() io.Writer        { return io.Discard }
func (r *recorder) Context() context.Context { return context.Background() }
func (r *recorder) Cleanup(f func())         { r.cleanups = append(r.cleanups, f) }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

// run runs a test with a recorder and returns its failures.
func run(test func(t testing.TB)) []string {
	r := &recorder{}
	var running sync.WaitGroup
	running.Go(func() {
		defer func() {
			for _, f := range slices.Backward(r.cleanups) {
				f()
			}
		}()
		test(r)
	})
	running.Wait()
	return r.failures
}

// runTest runs a test in an example and prints its failures.
func runTest(test func(t testing.TB)) {
	for _, failure := range run(test) {
		fmt.Println("FAIL:", failure)
	}
}

// message is a message of the producer orders.
func message(id string) producer.Message {
	return producer.Message{
		ID: id, Exchange: "orders", RoutingKey: "order.paid", Body: []byte(id), ContentType: "text/plain",
		Headers: map[string]string{"tenant": "a"},
	}
}

func commits(context.Context) error { return nil }

// orders is a producer whose Sends end soon.
func orders(t testing.TB, c *msghandlertest.Coordinator) *producer.Producer {
	t.Helper()
	return c.Producer(t, producer.Config{Name: "orders", SendTimeout: 5 * time.Second})
}

func send(t testing.TB, p *producer.Producer, m producer.Message) {
	t.Helper()
	must.Succeed(t, p.Send(t.Context(), m, commits))
}

func TestCommittedBusinessIsPublished(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	send(t, orders(t, c), message("1001"))
	m := c.Wait(t, msghandlertest.ByID("1001"), msghandlertest.ByExchange("orders"))
	if m.Producer != "orders" || m.RoutingKey != "order.paid" || string(m.Body) != "1001" || m.Attempt != 1 ||
		m.ContentType != "text/plain" || m.Headers["tenant"] != "a" || time.Since(m.Timestamp) > time.Minute {
		t.Errorf("published was %+v", m)
	}
	c.WaitIdle(t)
	if is := c.State(t, "orders", "1001"); is != producer.StateDone {
		t.Errorf("the message is %v", is)
	}
	if is := c.State(t, "orders", "never-sent"); is != 0 {
		t.Errorf("a message that was never sent is %v", is)
	}
}

func TestFailedBusinessPublishesNothing(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	failure := errors.New("declined")
	err := p.Send(t.Context(), message("1001"), func(context.Context) error { return failure })
	if !errors.Is(err, failure) {
		t.Errorf("Send returns %v", err)
	}
	c.AssertNothingPublished(t)
	if is := c.State(t, "orders", "1001"); is != producer.StateRolledBack {
		t.Errorf("the message is %v", is)
	}
}

// A refused half message runs no business; a refusal that may pass is repeated.
func TestRefusedCallsRunNoBusiness(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	var ran atomic.Bool
	c.Inject(
		msghandlertest.Refuse(msghandlertest.SendHalfMessage, codes.PermissionDenied).For("refused"),
		msghandlertest.Refuse(msghandlertest.SendHalfMessage, codes.ResourceExhausted).For("repeated").Times(2),
		msghandlertest.Refuse(msghandlertest.Rollback, codes.Unavailable).Always(),
	)
	err := p.Send(t.Context(), message("refused"), func(context.Context) error { ran.Store(true); return nil })
	if !errors.Is(err, producer.ErrRejected) || ran.Load() {
		t.Errorf("Send returns %v, the business ran: %v", err, ran.Load())
	}
	send(t, p, message("repeated"))
	c.Wait(t, msghandlertest.ByID("repeated"))
	c.AssertNothingPublished(t, msghandlertest.ByID("refused"))

	// While Rollback is refused, the answer to the final question rolls the message back.
	c.ClearFaults()
	if err := p.Rollback(t.Context(), "unknown", ""); err == nil {
		t.Error("after ClearFaults a Rollback of an unknown message is still refused with UNAVAILABLE")
	} else if !errors.Is(err, producer.ErrNotFound) {
		t.Errorf("Rollback returns %v", err)
	}
}

// What is lost on the way is made up for: each message is published, once.
func TestLostCallsAreMadeUpFor(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	c.Inject(
		msghandlertest.LoseResponse(msghandlertest.SendHalfMessage).For("half"),
		msghandlertest.LoseResponse(msghandlertest.Submit).For("submit"),
		msghandlertest.Ignore(msghandlertest.Submit).For("ignored"),
	)
	for _, id := range []string{"half", "submit", "ignored"} {
		send(t, p, message(id))
		c.Wait(t, msghandlertest.ByID(id))
	}
	c.WaitIdle(t)
	if all := c.Published(); len(all) != 3 {
		t.Errorf("published were %v", all)
	}
}

// Faults pick single messages out of a batch.
func TestFaultsPickMessagesOfABatch(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t, msghandlertest.WithConfig("confirm.after", "1h"))
	conn, err := grpc.NewClient(c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	api := pb.NewMessageHandlerServiceClient(conn)
	c.Inject(msghandlertest.Refuse(msghandlertest.SendHalfMessage, codes.Unavailable).For("2"),
		msghandlertest.Ignore(msghandlertest.SendHalfMessage).For("3"))
	request := &pb.SendHalfMessagesRequest{Producer: "orders", CallbackTarget: "127.0.0.1:1"}
	for _, id := range []string{"1", "2", "3"} {
		request.Messages = append(request.Messages, &pb.Message{Id: id, RoutingKey: "q"})
	}
	answer, err := api.SendHalfMessages(t.Context(), request)
	must.Succeed(t, err)
	for n, want := range []codes.Code{codes.OK, codes.Unavailable, codes.OK} {
		if got := answer.GetOutcomes()[n]; codes.Code(got.GetCode()) != want {
			t.Errorf("message %d: %v", n+1, got)
		}
	}
	for id, want := range map[string]producer.State{"1": producer.StatePending, "2": 0, "3": 0} {
		if is := c.State(t, "orders", id); is != want {
			t.Errorf("message %s is %v", id, is)
		}
	}
	c.Inject(msghandlertest.LoseResponse(msghandlertest.Rollback))
	if _, err := api.Rollback(t.Context(), &pb.RollbackRequest{Producer: "orders", Id: "1"}); err == nil {
		t.Error("the answer is not lost")
	}
	if is := c.State(t, "orders", "1"); is != producer.StateRolledBack {
		t.Errorf("after a Rollback whose answer was lost the message is %v", is)
	}
}

// Calls without faults reach the coordinator unread: those of operators, streams, and its health.
func TestOtherCallsReachTheCoordinator(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	conn, err := grpc.NewClient(c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	defer conn.Close()
	health, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("its health is %v, %v", health, err)
	}
	operators := adminv1.NewAdminServiceClient(conn)
	tail, err := operators.TailMessages(t.Context(), &adminv1.TailMessagesRequest{})
	must.Succeed(t, err)
	if _, err := tail.Header(); err != nil { // from now on
		t.Fatal(err)
	}
	send(t, orders(t, c), message("1001"))
	if told, err := tail.Recv(); err != nil || told.GetMoves()[0].GetId() != "1001" {
		t.Errorf("the stream tells %v, %v", told, err)
	}
	_, err = operators.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "never-sent"})
	if status.Code(err) != codes.NotFound || len(status.Convert(err).Details()) == 0 {
		t.Errorf("the error is %v, without details", err)
	}
	c.Kill(t)
	for range 100 { // batches of moves may come before the end
		if _, err := tail.Recv(); err != nil {
			return
		}
	}
	t.Error("the stream outlives the coordinator")
}

func TestDisconnectStopsTheBusiness(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	send(t, p, message("before"))
	c.Wait(t, msghandlertest.ByID("before"))
	c.Disconnect()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := p.Send(ctx, message("meanwhile"), func(context.Context) error {
		t.Error("the business runs without a half message")
		return nil
	})
	if !errors.Is(err, producer.ErrUnavailable) {
		t.Errorf("Send returns %v", err)
	}
	c.Reconnect()
	p = orders(t, c) // a new connection, without the pause of the first
	send(t, p, message("after"))
	c.Wait(t, msghandlertest.ByID("after"))
}

// A killed coordinator keeps its state, and the next one goes on with it.
func TestKilledCoordinatorKeepsItsState(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t, msghandlertest.WithConfig("confirm.after", "1h"))
	p := orders(t, c)
	c.Inject(msghandlertest.Ignore(msghandlertest.Submit).For("pending"))
	send(t, p, message("pending"))
	c.DisconnectBroker()
	send(t, p, message("sendable"))
	c.WaitState(t, "orders", "sendable", producer.StateSendable)
	address := c.Addr()
	c.Restart(t)
	if c.Addr() != address {
		t.Error("the coordinator has another address")
	}
	c.Wait(t, msghandlertest.ByID("sendable"))
	if is := c.State(t, "orders", "pending"); is != producer.StatePending {
		t.Errorf("the message is %v", is)
	}
	c.Retry(t, "orders", "pending")
	c.Wait(t, msghandlertest.ByID("pending"))
	c.WaitIdle(t) // killed before it has stored the acknowledgement, the next one would publish a copy
	c.Kill(t)
	c.Restart(t)
	c.WaitIdle(t)
	if all := c.Published(); len(all) != 2 {
		t.Errorf("published were %v", all)
	}
}

// What a coordinator has in hand when it is killed goes on with the next one, without waiting for the lease.
func TestLeasesEndWithARestart(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	asked := make(chan struct{}, 1)
	var questions atomic.Int64
	p := c.Producer(t, producer.Config{
		Name: "orders", Resolve: func(ctx context.Context, _ string, _ bool) (marker.Verdict, error) {
			if questions.Add(1) == 1 {
				asked <- struct{}{}
				<-ctx.Done() // until the coordinator that asks is killed
				return marker.Unknown, ctx.Err()
			}
			return marker.Committed, nil
		},
	})
	err := p.Send(t.Context(), message("1001"), func(context.Context) error { return producer.ErrOutcomeUnknown })
	if !errors.Is(err, producer.ErrOutcomeUnknown) {
		t.Errorf("Send returns %v", err)
	}
	<-asked
	c.Kill(t)
	c.Restart(t)
	c.Wait(t, msghandlertest.ByID("1001"))
}

func TestBrokerFaultsHappen(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	c.Inject(
		msghandlertest.BrokerNacks().For("refused").Always(), msghandlertest.BrokerReturns().For("returned").Always(),
		msghandlertest.BrokerReturns().For("late").Times(2), msghandlertest.BrokerLosesAck().For("repeated"),
	)
	for _, id := range []string{"refused", "returned", "late", "repeated"} {
		send(t, p, message(id))
	}
	c.WaitIdle(t)
	for id, want := range map[string]producer.State{
		"refused": producer.StateDead, "returned": producer.StateDead, "late": producer.StateDone,
		"repeated": producer.StateDone,
	} {
		if is := c.State(t, "orders", id); is != want {
			t.Errorf("%s is %v, want %v", id, is, want)
		}
	}
	var attempts []int
	for _, m := range c.Published(msghandlertest.ByID("repeated")) {
		attempts = append(attempts, m.Attempt)
	}
	if !slices.Equal(attempts, []int{1, 2}) {
		t.Errorf("the repeated message has the attempts %v", attempts)
	}
	if got := c.Published(msghandlertest.ByID("late")); len(got) != 1 {
		t.Errorf("the message that was returned twice is published as %v", got)
	}
}

func TestDisconnectedBrokerHoldsMessages(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	c.DisconnectBroker()
	send(t, p, message("away"))
	c.WaitState(t, "orders", "away", producer.StateSendable)
	if all := c.Published(); len(all) > 0 {
		t.Errorf("published were %v", all)
	}
	c.ReconnectBroker()
	c.Wait(t, msghandlertest.ByID("away"))
	c.BlockBroker()
	send(t, p, message("blocked"))
	c.WaitState(t, "orders", "blocked", producer.StateSendable)
	c.UnblockBroker()
	c.Wait(t, msghandlertest.ByID("blocked"))
	c.WaitIdle(t)
}

// A delay ends when the coordinator's clock is put forward, and not before.
func TestAdvanceEndsADelay(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	m := message("reminder")
	m.Delay = time.Hour
	send(t, orders(t, c), m)
	c.WaitState(t, "orders", "reminder", producer.StateSendable)
	c.Advance(59 * time.Minute)
	if all := c.Published(); len(all) > 0 {
		t.Errorf("published before its time was %v", all)
	}
	c.Advance(time.Minute)
	c.Wait(t, msghandlertest.ByID("reminder"))
	c.WaitIdle(t)
}

// The copy in the dead-letter exchange is not the message: a test that waits for a message must not get the copy.
func TestDeadLettersAreNotPublished(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t, msghandlertest.WithConfig("send.dead_letter_exchange", "dead"))
	letters := make(chan *consumer.Message, 1)
	consume(t, c, "dead", func(m *consumer.Message) { letters <- m })
	c.Inject(msghandlertest.BrokerNacks().For("1001").Times(3))
	send(t, orders(t, c), message("1001"))
	if m := <-letters; m.ID != "1001" {
		t.Errorf("the dead letter is %v", m)
	}
	c.AssertNothingPublished(t)
}

// Advance ends no lease of work that goes well: such a message would be published twice.
func TestAdvanceRepeatsNoMessage(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	for n := range 12 {
		id := fmt.Sprint(n)
		send(t, p, message(id))
		c.Wait(t, msghandlertest.ByID(id))
		c.Advance(time.Hour)
	}
	c.WaitIdle(t)
	if all := c.Published(); len(all) != 12 {
		t.Errorf("published were %v", all)
	}
}

// WaitIdle is the proof that nothing more comes: it fails while something may.
func TestUndecidedMessageFailsTheTest(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t, msghandlertest.WithTimeout(time.Second), msghandlertest.WithConfig("confirm.after", "1h"))
	c.Inject(msghandlertest.Ignore(msghandlertest.Submit))
	send(t, orders(t, c), message("1001"))
	failures := run(func(t testing.TB) {
		c.AssertNothingPublished(t)
		t.Errorf("the test goes on")
	})
	if len(failures) != 1 || !strings.Contains(failures[0], "orders/1001") ||
		!strings.Contains(failures[0], "STATE_PENDING") {
		t.Errorf("the test fails with %q", failures)
	}
}

func TestFailuresNameWhatWasPublished(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t, msghandlertest.WithTimeout(3*time.Second))
	p := orders(t, c)
	send(t, p, message("1001"))
	c.WaitIdle(t)
	c.BlockBroker()
	send(t, p, message("waiting"))
	c.WaitState(t, "orders", "waiting", producer.StateSendable)
	for name, check := range map[string]func(t testing.TB){
		"wait": func(t testing.TB) { c.Wait(t, msghandlertest.ByRoutingKey("other")) },
	} {
		failures := run(check)
		if len(failures) != 1 || !strings.Contains(failures[0], `orders/1001 to "orders" with key "order.paid"`) ||
			!strings.Contains(failures[0], "STATE_SENDABLE\norders/waiting, due") {
			t.Errorf("%s fails with %q", name, failures)
		}
	}
	c.UnblockBroker()
	failures := run(func(t testing.TB) { c.AssertNothingPublished(t, msghandlertest.ByID("1001")) })
	if len(failures) != 1 || !strings.Contains(failures[0], `orders/1001 to "orders" with key "order.paid"`) {
		t.Errorf("nothing fails with %q", failures)
	}
	failures = run(func(t testing.TB) { msghandlertest.Start(t, msghandlertest.WithConfig("confirm.nonsense", "1")) })
	if len(failures) != 1 || !strings.Contains(failures[0], "confirm.nonsense") {
		t.Errorf("an unknown key fails with %q", failures)
	}
}

// A fault that never happens leaves a test that shows nothing, such as after an id with a typing error.
func TestFaultThatNeverHappensFailsTest(t *testing.T) {
	t.Parallel()
	failures := run(func(t testing.TB) {
		c := msghandlertest.Start(t)
		c.Inject(msghandlertest.Ignore(msghandlertest.Submit).For("cleared"))
		c.ClearFaults()
		c.Inject(
			msghandlertest.Ignore(msghandlertest.Submit).For("1001"),
			msghandlertest.Refuse(msghandlertest.SendHalfMessage, codes.Internal).Times(5),
			msghandlertest.BrokerReturns().For("2002"), msghandlertest.BrokerNacks().For("2002").Always(),
		)
		send(t, orders(t, c), message("1001"))
	})
	if len(failures) != 1 || !strings.Contains(failures[0], `the fault BrokerReturns().For("2002") never happened`) {
		t.Errorf("the test fails with %q", failures)
	}
	defer func() {
		if recover() == nil {
			t.Error("a refusal with OK is no refusal, and is taken")
		}
	}()
	msghandlertest.Refuse(msghandlertest.Submit, codes.OK)
}

// The limit of a body is the coordinator's own.
func TestLargeBodiesPass(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t, msghandlertest.WithConfig("limits.body", "8MiB"))
	m := message("1001")
	m.Body = make([]byte, 6<<20)
	c.BlockBroker()
	send(t, orders(t, c), m)
	failures := run(func(t testing.TB) { c.WaitState(t, "orders", "1001", producer.StateSendable) })
	if len(failures) > 0 {
		t.Errorf("its state is not known: %q", failures)
	}
	c.UnblockBroker()
	if got := c.Wait(t, msghandlertest.ByID("1001")); len(got.Body) != len(m.Body) {
		t.Errorf("published were %d bytes", len(got.Body))
	}
}

// Deliver is a consumer without a connection: in order, with panics as errors.
func TestDeliverHandsMessagesToAHandler(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	p := orders(t, c)
	for _, id := range []string{"1", "2", "3"} {
		send(t, p, message(id))
		c.Wait(t, msghandlertest.ByID(id))
	}
	var handled []string
	unhandled := consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })
	if err := c.Deliver(t.Context(), unhandled, msghandlertest.ByID("4")); err == nil {
		t.Error("Deliver of no message returns no error, as if the handler were tested")
	}
	err := c.Deliver(t.Context(), consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
		handled = append(handled, m.Key())
		if m.ID == "2" {
			panic("no stock")
		}
		return nil
	}))
	if !slices.Equal(handled, []string{"orders/1", "orders/2", "orders/3"}) {
		t.Errorf("handled were %q", handled)
	}
	if err == nil || !strings.Contains(err.Error(), "orders/2: panic: no stock") {
		t.Errorf("Deliver returns %v", err)
	}
}

// consume runs a consumer SDK's consumer of the exchange until the test ends.
func consume(t *testing.T, c *msghandlertest.Coordinator, exchange string, handle func(*consumer.Message)) {
	t.Helper()
	ready := make(chan struct{}, 1)
	consumers, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: c.BrokerURL(), Queue: "queue-" + exchange, Consuming: func() { ready <- struct{}{} },
		Declare: &rabbitmqconsumer.Declare{Exchange: exchange, BindingKeys: []string{"order.*"}},
	})
	must.Succeed(t, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := consumers.Run(ctx, consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
			handle(m)
			return nil
		}))
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	<-ready
}

// The consumer SDK consumes from the broker of the test.
func TestConsumerReadsFromTheBroker(t *testing.T) {
	t.Parallel()
	c := msghandlertest.Start(t)
	handled := make(chan *consumer.Message, 1)
	consume(t, c, "orders", func(m *consumer.Message) { handled <- m })
	send(t, orders(t, c), message("1001"))
	if m := <-handled; m.Key() != "orders/1001" || m.Attempt != 1 {
		t.Errorf("the consumer gets %+v", m)
	}
}
