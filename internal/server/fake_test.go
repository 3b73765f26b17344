package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// store is a minimal store in memory, which records its calls.
type store struct {
	mu      sync.Mutex
	records map[halfmsg.Name]halfmsg.Record
	digests map[halfmsg.Name]string
	batches []int
	// fail, where set, is the error of every item of every call.
	fail error
	// away, where set, is the id of an unavailable message.
	away string
	// discardedFrom is the state that the last discard was for.
	discardedFrom halfmsg.State
	// before runs at the start of each call, with the method's name.
	before func(call string)
}

func newStore() *store {
	return &store{records: map[halfmsg.Name]halfmsg.Record{}, digests: map[halfmsg.Name]string{}}
}

// enter begins a call of n items.
func (s *store) enter(call string, n int) {
	if s.before != nil {
		s.before(call)
	}
	s.mu.Lock()
	s.batches = append(s.batches, n)
}

func (s *store) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.records)
}

// refuse gives a message an attempt and its last error.
func (s *store) refuse(producer, id, lastError string) { s.setError(producer, id, 1, lastError) }

// release gives a message its last error, without an attempt.
func (s *store) release(producer, id, lastError string) { s.setError(producer, id, 0, lastError) }

func (s *store) setError(producer, id string, attempts int, lastError string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := halfmsg.Name{Producer: producer, ID: id}
	record := s.records[name]
	record.PublishAttempts, record.LastError = attempts, lastError
	s.records[name] = record
}

func (s *store) put(producer, id string, state halfmsg.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := halfmsg.Name{Producer: producer, ID: id}
	s.records[name] = halfmsg.Record{
		Message: halfmsg.Message{
			Name:       name,
			Exchange:   "shop",
			RoutingKey: "paid",
		}, State: state, CreatedAt: time.Unix(1e9, 0),
	}
}

func (s *store) get(producer, id string) halfmsg.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records[halfmsg.Name{Producer: producer, ID: id}]
}

func (s *store) Create(_ context.Context, messages []halfmsg.Message) []halfmsg.Result {
	s.enter("Create", len(messages))
	defer s.mu.Unlock()
	results := make([]halfmsg.Result, len(messages))
	for i, m := range messages {
		if s.fail != nil {
			results[i].Err = s.fail
			continue
		}
		before, known := s.records[m.Name]
		switch {
		case !known:
			s.records[m.Name] = halfmsg.Record{Message: m, State: halfmsg.Pending}
			s.digests[m.Name] = m.Digest()
			results[i].State = halfmsg.Pending
		case s.digests[m.Name] != m.Digest():
			results[i] = halfmsg.Result{State: before.State, Err: halfmsg.ErrExists}
		default:
			results[i].State = before.State
		}
	}
	return results
}

func (s *store) Recall(_ context.Context, messages []halfmsg.Message) []halfmsg.Result {
	s.enter("Recall", len(messages))
	defer s.mu.Unlock()
	results := make([]halfmsg.Result, len(messages))
	for i, m := range messages {
		before, known := s.records[m.Name]
		switch results[i].State = before.State; {
		case !known:
			results[i].Err = halfmsg.ErrNotFound
		case s.digests[m.Name] != m.Digest():
			results[i].Err = halfmsg.ErrExists
		}
	}
	return results
}

func (s *store) move(name halfmsg.Name, event halfmsg.Event) halfmsg.Result {
	if s.fail != nil {
		return halfmsg.Result{Err: s.fail}
	}
	if s.away != "" && s.away == name.ID {
		return halfmsg.Result{Err: halfmsg.ErrUnavailable}
	}
	record, known := s.records[name]
	if !known {
		return halfmsg.Result{Err: halfmsg.ErrNotFound}
	}
	to, legal := halfmsg.Next(record.State, event)
	if !legal {
		return halfmsg.Result{State: record.State, Err: halfmsg.ErrIllegal}
	}
	if record.State = to; to == halfmsg.None {
		delete(s.records, name)
	} else {
		s.records[name] = record
	}
	return halfmsg.Result{State: to}
}

func (s *store) Lane(halfmsg.Name) string { return "" }

func (s *store) Submit(_ context.Context, names []halfmsg.Name, _ time.Duration) []halfmsg.Submitted {
	s.enter("Submit", len(names))
	defer s.mu.Unlock()
	return s.submitAll(names, halfmsg.EventSubmit)
}

func (s *store) SubmitTrusted(_ context.Context, names []halfmsg.Name, _ time.Duration) []halfmsg.Submitted {
	s.enter("SubmitTrusted", len(names))
	defer s.mu.Unlock()
	return s.submitAll(names, halfmsg.EventSubmitTrusted)
}

func (s *store) submitAll(names []halfmsg.Name, event halfmsg.Event) []halfmsg.Submitted {
	all := make([]halfmsg.Submitted, len(names))
	for i, name := range names {
		all[i].Result = s.move(name, event)
		switch {
		case all[i].Err == nil:
			all[i].Claim = &halfmsg.Claim{Message: s.records[name].Message, State: all[i].State, Token: "t"}
		case s.fail == nil && errors.Is(all[i].Err, halfmsg.ErrIllegal) && all[i].State != halfmsg.RolledBack:
			all[i].Err = nil
		}
	}
	return all
}

func (s *store) Rollback(_ context.Context, names []halfmsg.Name) []halfmsg.Result {
	s.enter("Rollback", len(names))
	defer s.mu.Unlock()
	return s.moveAll(names, halfmsg.EventRollback)
}

func (s *store) moveAll(names []halfmsg.Name, event halfmsg.Event) []halfmsg.Result {
	all := make([]halfmsg.Result, len(names))
	for i, name := range names {
		all[i] = s.move(name, event)
	}
	return all
}

func (s *store) Retry(_ context.Context, names []halfmsg.Name, by, reason string) []halfmsg.Result {
	s.enter("Retry", len(names))
	defer s.mu.Unlock()
	all := s.moveAll(names, halfmsg.EventRetry)
	for i, name := range names {
		if record, known := s.records[name]; known && all[i].Err == nil {
			at := time.Unix(2e9, 0)
			record.Timeline = record.Timeline.Add(
				halfmsg.Happening{What: "retry", First: at, Last: at, Times: 1, By: by, Cause: reason},
			)
			s.records[name] = record
		}
	}
	return all
}

func (s *store) Discard(_ context.Context, names []halfmsg.Name, from halfmsg.State) []halfmsg.Result {
	s.enter("Discard", len(names))
	defer s.mu.Unlock()
	s.discardedFrom = from
	all := make([]halfmsg.Result, len(names))
	for i, name := range names {
		if state := s.records[name].State; from != halfmsg.None && state != from {
			all[i] = halfmsg.Result{State: state, Err: halfmsg.ErrIllegal}
			continue
		}
		all[i] = s.move(name, halfmsg.EventDiscard)
	}
	return all
}

func (s *store) Get(_ context.Context, name halfmsg.Name) (halfmsg.Record, error) {
	s.enter("Get", 1)
	defer s.mu.Unlock()
	record, known := s.records[name]
	if s.fail != nil {
		return halfmsg.Record{}, s.fail
	}
	if !known {
		return halfmsg.Record{}, halfmsg.ErrNotFound
	}
	return record, nil
}

func (s *store) List(_ context.Context, q halfmsg.Query) (halfmsg.Page, error) {
	s.enter("List", 1)
	defer s.mu.Unlock()
	if s.fail != nil {
		return halfmsg.Page{}, s.fail
	}
	var page halfmsg.Page
	var all []halfmsg.Record
	for name, record := range s.records {
		if record.State == q.State && (q.Producer == "" || q.Producer == name.Producer) && name.String() > q.Cursor {
			all = append(all, record)
		}
	}
	slices.SortFunc(all, func(a, b halfmsg.Record) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	for i, record := range all {
		if len(page.Records) == q.Limit || page.Looked == q.Scan {
			page.Next = all[i-1].Name.String()
			break
		}
		page.Looked++
		if q.Matches(&record) && time.Since(record.CreatedAt) >= q.MinAge {
			page.Records = append(page.Records, record)
		}
	}
	return page, nil
}

func (s *store) Sample(_ context.Context, q halfmsg.Query) (sample halfmsg.Sample, err error) {
	s.enter("Sample", 1)
	defer s.mu.Unlock()
	for _, record := range s.records {
		if record.State != q.State || q.Producer != "" && q.Producer != record.Producer {
			continue
		}
		sample.Looked++
		sample.Total += 3 // each message that is read stands for three
		if q.Matches(&record) {
			sample.Records = append(sample.Records, halfmsg.Sampled{Record: record, Weight: 3})
		}
	}
	return sample, s.fail
}

func (s *store) Find(_ context.Context, id string, _ []string) (found []halfmsg.Record, err error) {
	s.enter("Find", 1)
	defer s.mu.Unlock()
	for name, record := range s.records {
		if name.ID == id {
			found = append(found, record)
		}
	}
	return found, s.fail
}

func (s *store) Stats(context.Context) ([]halfmsg.Stat, error) {
	s.enter("Stats", 1)
	defer s.mu.Unlock()
	pending := halfmsg.Stat{State: halfmsg.Pending, Count: 2, OldestAt: time.Unix(1e9, 0), FirstDueAt: time.Unix(1e9+6, 0)}
	return []halfmsg.Stat{pending, {State: halfmsg.Dead}}, s.fail
}

// targets allows the host orders, and has a configured target for the producer called configured.
type targets struct{}

func (targets) Resolve(producer, named string) (string, error) {
	switch {
	case named == "" && producer != "configured":
		return "", fmt.Errorf("%w: none given", halfmsg.ErrNoTarget)
	case strings.Contains(named, "unix:"):
		return "", fmt.Errorf("%w: %q", halfmsg.ErrBadTarget, named)
	case named != "" && !strings.HasPrefix(named, "orders:"):
		return "", fmt.Errorf("%w: %s matches no glob", halfmsg.ErrForbidden, named)
	}
	return "dns:///" + named, nil
}

// house is a server with a client.
type house struct {
	*server.Server
	store     *store
	conn      *grpc.ClientConn
	producers msghandlerv1.MessageHandlerServiceClient
	operators adminv1.AdminServiceClient
	health    healthv1.HealthClient
	served    chan error

	mu     sync.Mutex
	claims []halfmsg.Claim
	woken  []halfmsg.State
}

// pipeline hands claims and wake-ups to the house.
func (h *house) pipeline() *delivery.Pipeline {
	return &delivery.Pipeline{
		Confirm: confirmStage(h.submitted), ConfirmLoop: h.waker(halfmsg.Pending), SendLoop: h.waker(halfmsg.Sendable),
		DeleteLoop: h.waker(halfmsg.Acknowledged),
	}
}

// confirmStage is a confirm stage that only takes claims.
type confirmStage func(claims []halfmsg.Claim, until time.Time)

func (c confirmStage) Offer(claims []halfmsg.Claim, until time.Time) { c(claims, until) }

func (confirmStage) OfferAcknowledged([]halfmsg.Claim, time.Time) {}

func (confirmStage) DeleteLeftMarkers([]halfmsg.Claim) {}

type wakeFunc func()

func (w wakeFunc) Wake() { w() }

func (h *house) waker(state halfmsg.State) delivery.Waker { return wakeFunc(func() { h.wake(state) }) }

func (h *house) submitted(claims []halfmsg.Claim, _ time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claims = append(h.claims, claims...)
}

// taken are the claims of Submits so far.
func (h *house) taken() []halfmsg.Claim {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.claims)
}

func (h *house) wake(state halfmsg.State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.woken = append(h.woken, state)
}

// wakes are the states of the woken loops so far.
func (h *house) wakes() []halfmsg.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.woken)
}

// open serves on a free port of the loopback; edit may change the configuration.
func open(t testing.TB, edit ...func(*server.Config)) *house {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return openAt(t, listener, edit...)
}

// connect makes a client.
func connect(t testing.TB, target string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64 << 20)),
	}, options...)...)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// openAt serves on a listener, with a client to its address.
func openAt(t testing.TB, listener net.Listener, edit ...func(*server.Config)) *house {
	t.Helper()
	h := &house{store: newStore(), served: make(chan error, 1)}
	config := server.Config{
		Intake: h.store, Inspector: h.store, Targets: targets{}, Pipeline: h.pipeline(),
		Brokers:    []string{"events", "stock"},
		Attendance: attend.New(attend.Config{Instance: "here", Streams: 100, PerProducer: 100}),
		Logger:     slog.New(slog.DiscardHandler),
	}
	for _, e := range edit {
		e(&config)
	}
	var err error
	h.Server, err = server.New(config.WithDefaults())
	must.Succeed(t, err)
	go func() { h.served <- h.Serve(listener) }()
	h.conn = connect(t, listener.Addr().String())
	h.producers = msghandlerv1.NewMessageHandlerServiceClient(h.conn)
	h.operators = adminv1.NewAdminServiceClient(h.conn)
	h.health = healthv1.NewHealthClient(h.conn)
	t.Cleanup(func() {
		_ = h.conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := h.Stop(ctx); err != nil {
			t.Errorf("the server did not stop: %v", err)
		}
		if err := <-h.served; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return h
}

// invoke makes the unary call that a request is named for, and returns only its error.
func (h *house) invoke(ctx context.Context, request proto.Message) error {
	return invoke(ctx, h.conn, request)
}

func invoke(ctx context.Context, conn grpc.ClientConnInterface, request proto.Message) error {
	name, service := request.ProtoReflect().Descriptor().FullName(), "MessageHandlerService"
	if strings.HasPrefix(string(name), "msghandler.admin.") {
		service = "AdminService"
	}
	call := strings.TrimSuffix(string(name.Name()), "Request")
	answer, err := protoregistry.GlobalTypes.FindMessageByName(name.Parent().Append(protoreflect.Name(call + "Response")))
	if err != nil {
		return err
	}
	return conn.Invoke(ctx, fmt.Sprintf("/%s.%s/%s", name.Parent(), service, call), request, answer.New().Interface())
}

// alive proves that the server still takes a good message.
func (h *house) alive(t *testing.T) {
	t.Helper()
	if _, err := h.producers.SendHalfMessage(t.Context(), good("still-alive")); err != nil {
		t.Errorf("the server does not take a good message any more: %v", err)
	}
}

// good is a valid request.
func good(id string) *msghandlerv1.SendHalfMessageRequest {
	return &msghandlerv1.SendHalfMessageRequest{
		Producer: "orders", CallbackTarget: "orders:9000",
		Message: &msghandlerv1.Message{Id: id, Exchange: "shop", RoutingKey: "paid", Body: []byte("{}")},
	}
}

// fields are the fields in the violations of a status.
func fields(err error) (all []string) {
	for _, detail := range status.Convert(err).Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				all = append(all, v.GetField())
			}
		}
	}
	return all
}

// reason returns the ErrorInfo of a status, and whether the status has a retry delay.
func reason(err error) (info *errdetails.ErrorInfo, retry bool) {
	info = &errdetails.ErrorInfo{}
	for _, detail := range status.Convert(err).Details() {
		switch d := detail.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.RetryInfo:
			retry = d.GetRetryDelay().AsDuration() > 0
		}
	}
	return info, retry
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("got %v, want %v", err, want)
	}
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for tick := time.NewTicker(2 * time.Millisecond); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			tick.Stop()
			t.Fatalf("never: %s", what)
		}
	}
}
