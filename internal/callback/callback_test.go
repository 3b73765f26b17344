package callback_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// business is a producer whose answers a test makes up.
type business struct {
	msghandlerv1.UnimplementedProducerServiceServer
	confirm func(ctx context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error)

	mu      sync.Mutex
	asked   [][]string
	deleted [][]string
}

func (b *business) Confirm(ctx context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
	b.mu.Lock()
	b.asked = append(b.asked, r.GetIds())
	b.mu.Unlock()
	return b.confirm(ctx, r)
}

func (b *business) DeleteBusiness(
	_ context.Context, r *msghandlerv1.DeleteBusinessRequest,
) (*msghandlerv1.DeleteBusinessResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deleted = append(b.deleted, r.GetIds())
	return &msghandlerv1.DeleteBusinessResponse{}, nil
}

func (b *business) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.asked)
}

// committed answers COMMITTED for everything.
func committed(_ context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
	answer := &msghandlerv1.ConfirmResponse{}
	for _, id := range r.GetIds() {
		answer.Confirmations = append(answer.Confirmations,
			&msghandlerv1.Confirmation{Id: id, Verdict: msghandlerv1.Verdict_VERDICT_COMMITTED})
	}
	return answer, nil
}

// serve runs the producer on a free port of the loopback and returns its address.
func serve(t *testing.T, b *business, options ...grpc.ServerOption) string {
	t.Helper()
	return serveOn(t, b, func(l net.Listener) net.Listener { return l }, options...)
}

// serveOn runs the producer behind a listener of the test.
func serveOn(
	t *testing.T, b *business, behind func(net.Listener) net.Listener, options ...grpc.ServerOption,
) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := grpc.NewServer(options...)
	msghandlerv1.RegisterProducerServiceServer(server, b)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(behind(listener))
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return listener.Addr().String()
}

func client(t *testing.T, config callback.Config) *callback.Client {
	t.Helper()
	if config.Allow == nil {
		config.Allow = []string{"127.0.0.1:*"}
	}
	config.Logger = slog.New(slog.DiscardHandler)
	c, err := callback.New(config.WithDefaults())
	must.Succeed(t, err)
	t.Cleanup(c.Close)
	return c
}

func ids(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("id-%d", i)
	}
	return all
}

func TestConfirmCallsTheProducer(t *testing.T) {
	t.Parallel()
	b := &business{
		confirm: func(ctx context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
			if r.GetProducer() != "orders" || !r.GetFinal() {
				return nil, status.Error(codes.Internal, "the answer is about other ids")
			}
			return committed(ctx, r)
		},
	}
	target := halfmsg.Target{Producer: "orders", Address: "dns:///" + serve(t, b)}
	c := client(t, callback.Config{})
	verdicts, err := c.Confirm(t.Context(), target, []string{"1", "2"}, true)
	if err != nil || len(verdicts) != 2 || verdicts["1"] != halfmsg.VerdictCommitted ||
		verdicts["2"] != halfmsg.VerdictCommitted {
		t.Fatalf("got %v, %v", verdicts, err)
	}
	if err := c.DeleteBusiness(t.Context(), target, []string{"1", "2"}); err != nil || len(b.deleted) != 1 {
		t.Fatalf("got %v, deleted %v", err, b.deleted)
	}
}

func TestConfirmUsesTheConfiguredTarget(t *testing.T) {
	t.Parallel()
	b := &business{confirm: committed}
	c := client(t, callback.Config{Targets: map[string]string{"orders": serve(t, b)}})
	if _, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders"}, []string{"1"}, false); err != nil {
		t.Fatal(err)
	}
}

func TestLargeBatchesAreSplit(t *testing.T) {
	t.Parallel()
	b := &business{confirm: committed}
	c := client(t, callback.Config{MaxBatch: 10_000})
	target := halfmsg.Target{Producer: "orders", Address: serve(t, b)}
	verdicts, err := c.Confirm(t.Context(), target, ids(1201), false)
	if err != nil || len(verdicts) != 1201 {
		t.Fatalf("got %d verdicts, %v", len(verdicts), err)
	}
	if len(b.asked) != 3 || len(b.asked[0]) != 500 || len(b.asked[2]) != 201 {
		t.Fatalf("%d calls", len(b.asked))
	}
	if err := c.DeleteBusiness(t.Context(), target, ids(501)); err != nil || len(b.deleted) != 2 {
		t.Fatalf("got %v and %d calls", err, len(b.deleted))
	}
}

func TestADoubtIsNeverAVerdict(t *testing.T) {
	t.Parallel()
	const (
		committed = msghandlerv1.Verdict_VERDICT_COMMITTED
		back      = msghandlerv1.Verdict_VERDICT_ROLLED_BACK
	)
	say := func(id string, verdicts ...msghandlerv1.Verdict) (all []*msghandlerv1.Confirmation) {
		for _, v := range verdicts {
			all = append(all, &msghandlerv1.Confirmation{Id: id, Verdict: v})
		}
		return all
	}
	cases := map[string]struct {
		answer []*msghandlerv1.Confirmation
		want   halfmsg.Verdict
	}{
		"unavailable":           {say("1", msghandlerv1.Verdict_VERDICT_UNAVAILABLE), halfmsg.VerdictUnavailable},
		"left out":              {nil, halfmsg.VerdictUnknown},
		"unset":                 {say("1", 0), halfmsg.VerdictUnknown},
		"out of range":          {say("1", 99), halfmsg.VerdictUnknown},
		"negative":              {say("1", -2), halfmsg.VerdictUnknown},
		"rolled back":           {say("1", back), halfmsg.VerdictRolledBack},
		"said twice":            {say("1", committed, committed), halfmsg.VerdictCommitted},
		"contradictory":         {say("1", committed, back), halfmsg.VerdictUnknown},
		"contradictory thrice":  {say("1", committed, back, committed), halfmsg.VerdictUnknown},
		"unknown and committed": {say("1", 1, committed), halfmsg.VerdictUnknown},
		"of another id":         {say("2", committed), halfmsg.VerdictUnknown},
		"nil in between":        {append([]*msghandlerv1.Confirmation{{}}, say("1", committed)...), halfmsg.VerdictCommitted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &business{confirm: func(context.Context, *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
				return &msghandlerv1.ConfirmResponse{Confirmations: tc.answer}, nil
			}}
			c := client(t, callback.Config{})
			got, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: serve(t, b)}, []string{"1"}, false)
			if err != nil || len(got) != 1 || got["1"] != tc.want {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

// confirmFunc answers a Confirm.
type confirmFunc func(context.Context, *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error)

func TestAFailedCallIsNoVerdict(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context, _ *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	fail := func(code codes.Code) confirmFunc {
		return func(context.Context, *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
			return nil, status.Error(code, "the\nproducer \x1b[31msaid so")
		}
	}
	huge := func(context.Context, *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
		return &msghandlerv1.ConfirmResponse{Confirmations: []*msghandlerv1.Confirmation{
			{Id: "1", Verdict: msghandlerv1.Verdict_VERDICT_COMMITTED}, {Id: strings.Repeat("x", 2<<20)},
		}}, nil
	}
	for name, tc := range map[string]struct {
		confirm confirmFunc
		code    codes.Code
		// reached says that a message may be the reason.
		reached bool
	}{
		"hangs":         {hang, codes.DeadlineExceeded, false},
		"not found":     {fail(codes.NotFound), codes.NotFound, true},
		"unimplemented": {fail(codes.Unimplemented), codes.Unimplemented, false},
		"unavailable":   {fail(codes.Unavailable), codes.Unavailable, false},
		"internal":      {fail(codes.Internal), codes.Internal, true},
		"unknown":       {fail(codes.Unknown), codes.Unknown, true},
		"oversize":      {huge, codes.ResourceExhausted, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := serve(t, &business{confirm: tc.confirm})
			timeout := 30 * time.Second // so a slow machine fails no other case
			if name == "hangs" {
				timeout = 200 * time.Millisecond
			}
			c := client(t, callback.Config{Timeout: timeout})
			verdicts, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: address}, []string{"1"}, true)
			var failed *callback.CallError
			if verdicts != nil || !errors.As(err, &failed) || failed.Code() != tc.code {
				t.Fatalf("got %v, %v; want %v", verdicts, err, tc.code)
			}
			if is := errors.Is(err, halfmsg.ErrCallFailed); is != tc.reached || failed.Reached != tc.reached {
				t.Errorf("a message may be the reason: %t, %t; want %t", is, failed.Reached, tc.reached)
			}
			if name == "hangs" && !strings.HasSuffix(err.Error(), ": no answer within 200ms") {
				t.Errorf("the cause reads %q", err)
			}
			if text := err.Error(); !strings.Contains(text, address) || !strings.Contains(text, tc.code.String()) ||
				strings.ContainsAny(text, "\n\x1b") {
				t.Errorf("the cause reads %q", text)
			}
		})
	}
}

func TestARefusedConnectionFailsAtOnce(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	address := listener.Addr().String()
	_ = listener.Close()
	c := client(t, callback.Config{Timeout: time.Minute})
	_, err = c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: address}, []string{"1"}, false)
	if status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v", err)
	}
}

func TestAnUnresolvedNameIsReported(t *testing.T) {
	t.Parallel()
	// gRPC takes a name that DNS does not know for one without addresses.
	c := client(t, callback.Config{Allow: []string{"orders.nowhere:9000"}}.WithDialOptions(named()))
	_, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: "orders.nowhere:9000"}, []string{"1"},
		false)
	var failed *callback.CallError
	if !errors.As(err, &failed) || !failed.Unresolved() || !strings.Contains(err.Error(), "does not resolve") {
		t.Errorf("the cause reads %q", err)
	}
}

// named makes a name resolve to the addresses, as DNS would.
func named(addresses ...string) grpc.DialOption {
	r := manual.NewBuilderWithScheme("dns")
	state := resolver.State{}
	for _, address := range addresses {
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	r.InitialState(state)
	return grpc.WithResolvers(r)
}

func TestCallsRotateOverReplicas(t *testing.T) {
	t.Parallel()
	one, two := &business{confirm: committed}, &business{confirm: committed}
	c := client(t, callback.Config{
		Allow: []string{"orders.svc:9000"}, Networks: []string{"127.0.0.0/8"},
	}.WithDialOptions(named(serve(t, one), serve(t, two))))
	target := halfmsg.Target{Producer: "orders", Address: "orders.svc:9000"}
	deadline := time.Now().Add(10 * time.Second)
	for one.calls() < 5 || two.calls() < 5 {
		if time.Now().After(deadline) {
			t.Fatalf("%d and %d calls", one.calls(), two.calls())
		}
		if _, err := c.Confirm(t.Context(), target, []string{"1"}, false); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAForbiddenAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	touched := make(chan struct{}, 1)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.Close()
			touched <- struct{}{}
		}
	}()
	config := callback.Config{Allow: []string{"orders.svc:9000"}}
	c := client(t, config.WithDialOptions(named(listener.Addr().String())))
	_, err = c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: "orders.svc:9000"}, []string{"1"}, false)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "callbacks.networks") {
		t.Errorf("got %v", err)
	}
	select {
	case <-touched:
		t.Error("the address was connected to")
	default:
	}
}

func TestStoredForbiddenTargetIsNotDialled(t *testing.T) {
	t.Parallel()
	b := &business{confirm: committed}
	address := serve(t, b)
	c := client(t, callback.Config{Allow: []string{"orders:9000"}})
	_, err := c.Confirm(t.Context(), halfmsg.Target{Producer: "orders", Address: "dns:///" + address}, []string{"1"},
		false)
	if !errors.Is(err, halfmsg.ErrForbidden) || b.calls() != 0 {
		t.Fatalf("got %v and %d calls", err, b.calls())
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	c := client(t, callback.Config{}.WithMaxTargets(2))
	hold, entered := make(chan struct{}), make(chan struct{})
	first := &business{
		confirm: func(ctx context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
			close(entered)
			<-hold
			return committed(ctx, r)
		},
	}
	answered := make(chan error, 1)
	slow := halfmsg.Target{Producer: "slow", Address: serve(t, first)}
	go func() {
		_, err := c.Confirm(t.Context(), slow, []string{"1"}, false)
		answered <- err
	}()
	<-entered
	for range 5 { // pushes the slow one out while its call is under way
		b := &business{confirm: committed}
		to := halfmsg.Target{Producer: "p", Address: serve(t, b)}
		if _, err := c.Confirm(t.Context(), to, []string{"1"}, false); err != nil {
			t.Fatal(err)
		}
	}
	close(hold)
	if err := <-answered; err != nil {
		t.Fatalf("a call was cut off by the limit: %v", err)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	t.Parallel()
	c := client(t, callback.Config{Timeout: time.Minute})
	entered := make(chan struct{})
	b := &business{
		confirm: func(ctx context.Context, _ *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
			close(entered)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	target := halfmsg.Target{Producer: "orders", Address: serve(t, b)}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Confirm(t.Context(), target, []string{"1"}, false)
		answered <- err
	}()
	<-entered
	c.Close()
	if err := <-answered; err == nil {
		t.Fatal("the call went on")
	}
	if _, err := c.Confirm(t.Context(), target, []string{"1"}, false); err == nil {
		t.Fatal("a closed client calls")
	}
}

// A look at the certificate of a producer obeys the rules of calls.
func TestDialObeysTheAllowList(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	c := client(t, callback.Config{})
	conn, err := c.Dial(t.Context(), "dns:///"+listener.Addr().String())
	must.Succeed(t, err)
	conn.Close()
	for _, to := range []string{"localhost:1", "127.0.0.2:1", "attend:///orders"} {
		if _, err := c.Dial(t.Context(), to); err == nil {
			t.Errorf("%s was dialled", to)
		}
	}
}
