package producer_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// must ends the test when a step of it returned an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fault is injected into a call of the fake coordinator.
type fault struct {
	before error // the request is lost: nothing is done, and this is answered
	after  error // the call takes effect, and this error replaces the reply
	hold   <-chan struct{}
}

// coordinator is a coordinator in memory that can lose, hang and refuse calls.
type coordinator struct {
	pb.UnimplementedMessageHandlerServiceServer
	// fault is asked before each call; n counts the calls of this name from 0. Set fault before the first call.
	fault func(rpc string, n int) fault
	// confirms makes every Submit ask the producer at once, as a coordinator does.
	confirms bool
	producer pb.ProducerServiceClient

	mu        sync.Mutex
	contents  map[string]*pb.Message
	states    map[string]pb.State
	calls     map[string]int
	sizes     map[string][]int
	delivered []string
	reasons   []string
}

func newCoordinator() *coordinator {
	return &coordinator{
		contents: map[string]*pb.Message{}, states: map[string]pb.State{},
		calls: map[string]int{}, sizes: map[string][]int{},
	}
}

// call wraps the work of one RPC on some items.
func (c *coordinator) call(ctx context.Context, rpc string, items int, work func()) error {
	c.mu.Lock()
	n := c.calls[rpc]
	c.calls[rpc]++
	c.sizes[rpc] = append(c.sizes[rpc], items)
	var f fault
	if c.fault != nil {
		f = c.fault(rpc, n)
	}
	c.mu.Unlock()
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.before != nil {
		return f.before
	}
	c.mu.Lock()
	work()
	c.mu.Unlock()
	return f.after
}

func (c *coordinator) SendHalfMessages(
	ctx context.Context, r *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	response := &pb.SendHalfMessagesResponse{}
	err := c.call(ctx, "SendHalfMessages", len(r.GetMessages()), func() {
		for _, m := range r.GetMessages() {
			response.Outcomes = append(response.Outcomes, c.store(m))
		}
	})
	return response, err
}

func (c *coordinator) store(m *pb.Message) *pb.Outcome {
	old := c.contents[m.GetId()]
	switch {
	case m.GetExchange() == "amq.bad":
		return &pb.Outcome{Code: int32(codes.InvalidArgument), Error: "message.exchange: amq. is reserved"}
	case old == nil:
		c.contents[m.GetId()] = m
		c.states[m.GetId()] = pb.State_STATE_PENDING
	case !proto.Equal(old, m):
		return &pb.Outcome{
			Code: int32(codes.AlreadyExists), Error: "another message has that name", Reason: "MESSAGE_EXISTS",
		}
	}
	return &pb.Outcome{State: c.states[m.GetId()]}
}

func (c *coordinator) SubmitAll(ctx context.Context, r *pb.SubmitAllRequest) (*pb.SubmitAllResponse, error) {
	response := &pb.SubmitAllResponse{}
	err := c.call(ctx, "SubmitAll", len(r.GetIds()), func() {
		for _, id := range r.GetIds() {
			response.Outcomes = append(response.Outcomes, c.submit(id))
		}
	})
	if err == nil && c.confirms {
		err = c.confirm(ctx, false, r.GetIds()...)
	}
	return response, err
}

func (c *coordinator) submit(id string) *pb.Outcome {
	switch state := c.states[id]; state {
	case pb.State_STATE_UNSPECIFIED:
		return &pb.Outcome{Code: int32(codes.NotFound), Error: "no such message"}
	case pb.State_STATE_ROLLED_BACK:
		return &pb.Outcome{Code: int32(codes.FailedPrecondition), Error: "rolled back", State: state}
	case pb.State_STATE_ABANDONED:
		c.states[id] = pb.State_STATE_PENDING
	}
	return &pb.Outcome{State: c.states[id]}
}

func (c *coordinator) Submit(ctx context.Context, r *pb.SubmitRequest) (*pb.SubmitResponse, error) {
	var o *pb.Outcome
	if err := c.call(ctx, "Submit", 1, func() { o = c.submit(r.GetId()) }); err != nil {
		return nil, err
	}
	switch codes.Code(o.GetCode()) {
	case codes.OK:
	case codes.FailedPrecondition:
		return nil, illegal(o.GetState())
	default:
		return nil, status.Error(codes.Code(o.GetCode()), o.GetError())
	}
	return &pb.SubmitResponse{State: o.GetState()}, nil
}

func (c *coordinator) Rollback(ctx context.Context, r *pb.RollbackRequest) (*pb.RollbackResponse, error) {
	var refused error
	err := c.call(ctx, "Rollback", 1, func() {
		switch c.states[r.GetId()] {
		case pb.State_STATE_SENDABLE, pb.State_STATE_DONE:
			refused = illegal(c.states[r.GetId()])
		default:
			c.states[r.GetId()] = pb.State_STATE_ROLLED_BACK
			c.reasons = append(c.reasons, r.GetReason())
		}
	})
	if err == nil {
		err = refused
	}
	return &pb.RollbackResponse{State: pb.State_STATE_ROLLED_BACK}, err
}

// illegal is how the coordinator refuses a call because of the message's state.
// waitEnded is the answer of a coordinator whose wait for a message has ended.
func waitEnded(refusal string) error {
	s, err := status.New(codes.DeadlineExceeded, "submitted; only the wait has ended; last error: "+refusal).WithDetails(
		&errdetails.ErrorInfo{Reason: "WAIT_ENDED", Domain: "msghandler", Metadata: map[string]string{"state": "sendable"}})
	if err != nil {
		return err
	}
	return s.Err()
}

func illegal(state pb.State) error {
	s, err := status.New(codes.FailedPrecondition, "not allowed in its state").WithDetails(&errdetails.ErrorInfo{
		Reason: "ILLEGAL", Domain: "msghandler",
		Metadata: map[string]string{"state": strings.TrimPrefix(state.String(), "STATE_")},
	})
	if err != nil {
		return err
	}
	return s.Err()
}

// confirm asks about pending messages as the confirm loop does.
func (c *coordinator) confirm(ctx context.Context, final bool, ids ...string) error {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	ids = slices.DeleteFunc(ids, func(id string) bool { return c.state(id) != pb.State_STATE_PENDING })
	if len(ids) == 0 {
		return nil
	}
	answer, err := c.producer.Confirm(ctx, &pb.ConfirmRequest{Producer: "orders", Ids: ids, Final: final})
	if err != nil {
		return err
	}
	var decided []string
	c.mu.Lock()
	for _, a := range answer.GetConfirmations() {
		switch a.GetVerdict() {
		case pb.Verdict_VERDICT_COMMITTED:
			c.states[a.GetId()] = pb.State_STATE_DONE
			c.delivered = append(c.delivered, a.GetId())
		case pb.Verdict_VERDICT_ROLLED_BACK:
			c.states[a.GetId()] = pb.State_STATE_ROLLED_BACK
		default:
			if final {
				c.states[a.GetId()] = pb.State_STATE_ABANDONED
			}
			continue
		}
		decided = append(decided, a.GetId())
	}
	c.mu.Unlock()
	if len(decided) == 0 {
		return nil
	}
	_, err = c.producer.DeleteBusiness(ctx, &pb.DeleteBusinessRequest{Producer: "orders", Ids: decided})
	return err
}

func (c *coordinator) setFault(f func(rpc string, n int) fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = f
}

func (c *coordinator) state(id string) pb.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.states[id]
}

func (c *coordinator) setState(id string, state pb.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states[id] = state
}

// count is how many calls of a name came in.
func (c *coordinator) count(rpc string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[rpc]
}

// house is a producer between its coordinator and its own gRPC server.
type house struct {
	*coordinator
	p       *producer.Producer
	config  producer.Config
	markers *memory.Store
	log     *logged
}

// newHouse starts a house; the end of the test stops all parts.
func newHouse(t *testing.T, change func(*producer.Config, *coordinator)) *house {
	t.Helper()
	h := &house{coordinator: newCoordinator(), markers: memory.New(), log: &logged{}}
	door := bufconn.Listen(1 << 20)
	config := producer.Config{
		Name: "orders", Coordinator: "passthrough:///coordinator", CallbackTarget: "orders:7001",
		Markers: h.markers, Logger: slog.New(h.log),
		DialOptions: []grpc.DialOption{dialer(door)}, Coordinators: producer.Coordinators{Anyone: true},
	}
	if change != nil {
		change(&config, h.coordinator)
	}
	h.config = config
	serve(t, door, func(s *grpc.Server) { pb.RegisterMessageHandlerServiceServer(s, h.coordinator) })
	h.p = h.start(t)
	return h
}

// newReplica is another producer of the same name, with the same markers; from now on the coordinator asks the
// replica.
func newReplica(t *testing.T, h *house) *producer.Producer { return h.start(t) }

// start starts a producer, which the coordinator asks from now on.
func (h *house) start(t *testing.T) *producer.Producer {
	t.Helper()
	p, err := producer.New(h.config)
	must(t, err)
	hatch := bufconn.Listen(1 << 20)
	serve(t, hatch, func(s *grpc.Server) { p.Register(s) })
	conn, err := grpc.NewClient("passthrough:///producer", dialer(hatch),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	h.producer = pb.NewProducerServiceClient(conn)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = p.Close(ctx)
		_ = conn.Close()
	})
	return p
}

func dialer(l *bufconn.Listener) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
}

func serve(t *testing.T, l net.Listener, register func(*grpc.Server)) {
	t.Helper()
	s := grpc.NewServer()
	register(s)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-stopped
	})
}

// verdict asks Confirm about an id.
func (h *house) verdict(t *testing.T, id string, final bool) pb.Verdict {
	t.Helper()
	request := &pb.ConfirmRequest{Producer: "orders", Ids: []string{id}, Final: final}
	answer, err := h.producer.Confirm(t.Context(), request)
	if err != nil {
		t.Fatalf("Confirm: %v", err)
	}
	if len(answer.GetConfirmations()) != 1 || answer.GetConfirmations()[0].GetId() != id {
		t.Fatalf("Confirm of %q answered %v", id, answer)
	}
	return answer.GetConfirmations()[0].GetVerdict()
}

// marked reads a marker.
func (h *house) marked(t *testing.T, id string) marker.Verdict {
	t.Helper()
	found, err := h.markers.Lookup(t.Context(), []string{id}, false)
	must(t, err)
	return found[id]
}

// logged counts log lines by level.
type logged struct {
	mu    sync.Mutex
	lines []string
}

func (l *logged) Enabled(context.Context, slog.Level) bool { return true }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logged) WithGroup(string) slog.Handler            { return l }
func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r.Level.String()+" "+r.Message)
	return nil
}

func (l *logged) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func message(id string) producer.Message {
	return producer.Message{ID: id, Exchange: "orders", RoutingKey: "order.paid", Body: []byte("paid " + id)}
}

// commits is a business that commits.
func commits(context.Context) error { return nil }

// ran counts the runs of a business that ends with err.
func ran(n *int, err error) func(context.Context) error {
	return func(context.Context) error {
		*n++
		return err
	}
}
