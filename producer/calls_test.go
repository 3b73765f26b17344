package producer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSingleStepsDeliverTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		for _, id := range []string{"paid", "failed"} {
			if state, err := h.p.SendHalf(t.Context(), message(id)); err != nil || state != producer.StatePending {
				t.Fatalf("SendHalf: %v, %v", state, err)
			}
		}
		if state, err := h.p.Submit(t.Context(), "paid"); err != nil || state != producer.StatePending {
			t.Errorf("Submit: %v, %v", state, err)
		}
		if h.marked(t, "paid") != marker.Committed {
			t.Error("Submit left no marker")
		}
		err := h.p.Rollback(t.Context(), "paid", "by mistake")
		if !errors.Is(err, producer.ErrAlreadyCommitted) || h.count("Rollback") != 0 {
			t.Errorf("Rollback of a committed message: %v, calls %v", err, h.calls)
		}
		if err := h.p.Rollback(t.Context(), "failed", strings.Repeat("é", 1000)); err != nil {
			t.Errorf("Rollback: %v", err)
		}
		if h.state("failed") != producer.StateRolledBack || len(h.reasons[0]) > 1000 {
			t.Errorf("state %v, reason of %d bytes", h.state("failed"), len(h.reasons[0]))
		}
		if h.marked(t, "failed") != marker.RolledBack {
			t.Errorf("marker %v", h.marked(t, "failed"))
		}
		for name, call := range map[string]func(context.Context, string) (producer.State, error){
			"Submit": h.p.Submit, "Wait": h.p.Wait,
		} {
			_, err := call(t.Context(), "failed")
			if !errors.Is(err, producer.ErrContradicted) || errors.Is(err, producer.ErrRolledBack) {
				t.Errorf("%s of a rolled-back message: %v", name, err)
			}
		}
		for _, call := range []func() error{
			func() error { _, err := h.p.Submit(t.Context(), "\xff"); return err },
			func() error { _, err := h.p.Wait(t.Context(), "\xff"); return err },
			func() error { return h.p.Rollback(t.Context(), "\xff", "") },
		} {
			if err := call(); !errors.Is(err, producer.ErrRejected) {
				t.Errorf("an id that is not UTF-8: %v", err)
			}
		}
	})
}

func TestContradictedSubmitIsNoRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, nil)
		if _, err := h.markers.Put(t.Context(), []string{"1"}, marker.RolledBack); err != nil {
			t.Fatal(err)
		}
		_, err := h.p.Submit(t.Context(), "1")
		if !errors.Is(err, producer.ErrContradicted) || errors.Is(err, producer.ErrRolledBack) {
			t.Errorf("got %v: who runs a rolled-back business again would run a committed one twice", err)
		}
	})
}

func TestWaitOutlivesItsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(rpc string, n int) fault {
				switch {
				case rpc != "Submit" || n > 2:
					return fault{}
				case n == 0:
					return fault{before: errLost}
				}
				return fault{hold: make(chan struct{})} // a connection that died silently
			}
		})
		h.setState("1001", producer.StateDone)
		start := time.Now()
		if state, err := h.p.Wait(t.Context(), "1001"); err != nil || state != producer.StateDone {
			t.Errorf("got %v, %v", state, err)
		}
		if took := time.Since(start); took < time.Minute || took > 65*time.Second {
			t.Errorf("took %v", took)
		}
		if h.markers.Len() != 0 {
			t.Error("Wait left a marker")
		}
		h.coordinator.fault = func(string, int) fault { return fault{hold: make(chan struct{})} }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := h.p.Wait(ctx, "1001")
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, producer.ErrUnavailable) {
			t.Errorf("a Wait whose time is up: %v", err)
		}
	})
}

// The last answer before the deadline says why the message has not got there: no further call replaces it.
func TestWaitKeepsTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(string, int) fault {
				answered := make(chan struct{})
				time.AfterFunc(2850*time.Millisecond, func() { close(answered) })
				return fault{hold: answered, before: waitEnded("312 NO_ROUTE")}
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begun := time.Now()
		_, err := h.p.Wait(ctx, "1001")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "312 NO_ROUTE") {
			t.Errorf("got %v", err)
		}
		if calls, took := h.coordinator.count("Submit"), time.Since(begun); calls != 1 || took < 3*time.Second {
			t.Errorf("%d calls in %v", calls, took)
		}
	})
}

func TestCloseFlushesAndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(rpc string, _ int) fault {
				if rpc == "SubmitAll" {
					return fault{hold: gate}
				}
				return fault{}
			}
		})
		for i := range 5 {
			must(t, h.p.Send(t.Context(), message(fmt.Sprint(i)), commits))
		}
		running := make(chan error)
		go func() {
			running <- h.p.Send(t.Context(), message("slow"), func(context.Context) error {
				<-time.After(3 * time.Second)
				return nil
			})
		}()
		synctest.Wait()
		time.AfterFunc(2*time.Second, func() { close(gate) })
		start := time.Now()
		if err := h.p.Close(t.Context()); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("Close: %v after %v", err, time.Since(start))
		}
		if err := <-running; err != nil {
			t.Errorf("the running Send: %v", err)
		}
		submitted := 0
		for _, n := range h.sizes["SubmitAll"] {
			submitted += n
		}
		if submitted != 6 {
			t.Errorf("%d submitted of 6", submitted)
		}
		for name, err := range map[string]error{
			"Send":     h.p.Send(t.Context(), message("x"), nil),
			"Rollback": h.p.Rollback(t.Context(), "x", ""),
			"Close":    h.p.Close(t.Context()),
		} {
			if name == "Close" && err != nil || name != "Close" && !errors.Is(err, producer.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			c.fault = func(rpc string, _ int) fault {
				if rpc == "SubmitAll" {
					return fault{hold: make(chan struct{})}
				}
				return fault{}
			}
		})
		must(t, h.p.Send(t.Context(), message("1"), commits))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := h.p.Close(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 submits") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTheBackgroundIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(config *producer.Config, c *coordinator) {
			config.Background = 3
			c.fault = func(rpc string, _ int) fault {
				if rpc == "SubmitAll" {
					return fault{before: errLost}
				}
				return fault{}
			}
		})
		for i := range 10 {
			must(t, h.p.Send(t.Context(), message(fmt.Sprint(i)), commits))
		}
		want := []string{"WARN too many submits are under way; the coordinator will ask"} // and not seven times
		if lines := h.log.all(); !slices.Equal(lines, want) {
			t.Errorf("logged %q", lines)
		}
		if h.markers.Len() != 10 {
			t.Errorf("%d markers", h.markers.Len())
		}
	})
}

// TestTheBooksBalance runs many businesses against a coordinator that loses a third of all calls, and then runs the
// confirm loop: each committed message is delivered once, and no other is.
func TestTheBooksBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(_ *producer.Config, c *coordinator) {
			random := rand.New(rand.NewPCG(1, 2))
			c.confirms = true
			c.fault = func(string, int) fault {
				switch random.IntN(6) {
				case 0:
					return fault{before: errLost}
				case 1:
					return fault{after: status.Error(codes.Internal, "stream reset")}
				}
				return fault{}
			}
		})
		var mu sync.Mutex
		committed := map[string]bool{}
		var sends sync.WaitGroup
		for i := range 600 {
			id := fmt.Sprintf("order-%d", i)
			sends.Go(func() {
				defer func() { _ = recover() }()
				err := h.p.Send(t.Context(), message(id), func(context.Context) error {
					switch i % 5 {
					case 0:
						return errors.New("card declined")
					case 1:
						panic("before the commit")
					}
					mu.Lock()
					committed[id] = true
					mu.Unlock()
					<-time.After(time.Duration(i%5) * time.Second) // of fake time
					return nil
				})
				mu.Lock()
				defer mu.Unlock()
				if (err == nil) != committed[id] {
					t.Errorf("%s: committed %v, yet Send returned %v", id, committed[id], err)
				}
			})
		}
		sends.Wait()
		must(t, h.p.Close(t.Context()))
		for i := range 600 {
			must(t, h.confirm(t.Context(), true, fmt.Sprintf("order-%d", i)))
		}
		delivered := map[string]int{}
		for _, id := range h.delivered {
			delivered[id]++
		}
		for i := range 600 {
			id := fmt.Sprintf("order-%d", i)
			want := 0
			if committed[id] {
				want = 1
			}
			if delivered[id] != want || h.state(id) == producer.StatePending {
				t.Errorf("%s: delivered %d times, want %d; state %v", id, delivered[id], want, h.state(id))
			}
			// A rolled-back marker stays until it expires.
			if h.marked(t, id) == marker.Committed {
				t.Errorf("%s: the marker of its commit is left over", id)
			}
		}
		if len(committed) != 360 {
			t.Errorf("%d committed", len(committed))
		}
	})
}

// TestSeveralCoordinators uses real sockets: one of two coordinators goes away, and no caller notices.
func TestSeveralCoordinators(t *testing.T) {
	t.Parallel()
	shared := newCoordinator()
	var addresses []string
	var servers []*grpc.Server
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		s := grpc.NewServer()
		pb.RegisterMessageHandlerServiceServer(s, shared)
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		addresses = append(addresses, l.Addr().String())
		servers = append(servers, s)
	}
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: strings.Join(addresses, ", "), Markers: memory.New(),
	})
	must(t, err)
	for i := range 100 {
		if i == 50 {
			servers[0].Stop()
		}
		must(t, p.Send(t.Context(), message(fmt.Sprint(i)), commits))
	}
	must(t, p.Close(t.Context()))
	if len(shared.contents) != 100 {
		t.Errorf("%d stored", len(shared.contents))
	}
}

// A coordinator that reports itself unhealthy gets no calls, though calls would be accepted and would hang.
func TestUnhealthyCoordinatorGetsNoCalls(t *testing.T) {
	t.Parallel()
	sick, well := newCoordinator(), newCoordinator()
	var addresses []string
	for coordinator, serving := range map[*coordinator]healthv1.HealthCheckResponse_ServingStatus{
		sick: healthv1.HealthCheckResponse_NOT_SERVING, well: healthv1.HealthCheckResponse_SERVING,
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		addresses = append(addresses, l.Addr().String())
		serve(t, l, func(s *grpc.Server) {
			pb.RegisterMessageHandlerServiceServer(s, coordinator)
			status := health.NewServer()
			status.SetServingStatus("", serving)
			healthv1.RegisterHealthServer(s, status)
		})
	}
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: strings.Join(addresses, ","), Markers: memory.New(),
	})
	must(t, err)
	for i := range 20 {
		must(t, p.Send(t.Context(), message(fmt.Sprint(i)), commits))
	}
	must(t, p.Close(t.Context()))
	if sick, well := sick.count("SendHalfMessages"), well.count("SendHalfMessages"); sick != 0 || well != 20 {
		t.Errorf("%d calls went to the failing coordinator, %d to the other", sick, well)
	}
}

// The error of a caller whose coordinators all report themselves unhealthy does not speak of grpc-go's balancers.
func TestUnhealthyCoordinatorsAreNamed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *producer.Config, _ *coordinator) {
		sick := bufconn.Listen(1 << 20)
		serve(t, sick, func(s *grpc.Server) {
			status := health.NewServer()
			status.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
			healthv1.RegisterHealthServer(s, status)
		})
		c.DialOptions, c.SendTimeout = []grpc.DialOption{dialer(sick)}, 2*time.Second
	})
	err := h.p.Send(t.Context(), message("1"), commits)
	if !errors.Is(err, producer.ErrUnavailable) || !strings.Contains(err.Error(), "their Redis is away") ||
		strings.Contains(err.Error(), "pickfirst") {
		t.Errorf("got %v", err)
	}
}

// refusingHealth refuses health checks.
type refusingHealth struct {
	healthv1.UnimplementedHealthServer
}

func (refusingHealth) Watch(*healthv1.HealthCheckRequest, healthv1.Health_WatchServer) error {
	return status.Error(codes.ResourceExhausted, "too many streams are open")
}

// A refused health check says nothing of Redis, and its reason stays.
func TestRefusedHealthCheckKeepsItsReason(t *testing.T) {
	t.Parallel()
	h := newHouse(t, func(c *producer.Config, _ *coordinator) {
		full := bufconn.Listen(1 << 20)
		serve(t, full, func(s *grpc.Server) { healthv1.RegisterHealthServer(s, refusingHealth{}) })
		c.DialOptions, c.SendTimeout = []grpc.DialOption{dialer(full)}, 2*time.Second
	})
	err := h.p.Send(t.Context(), message("1"), commits)
	if !errors.Is(err, producer.ErrUnavailable) || !strings.Contains(err.Error(), "too many streams are open") ||
		strings.Contains(err.Error(), "Redis") {
		t.Errorf("got %v", err)
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := producer.New(producer.Config{SendTimeout: -time.Second})
	for _, field := range []string{"Name", "Coordinator", "Markers", "SendTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named: %v", field, err)
		}
	}
	_, err = producer.New(producer.Config{Name: "orders", Coordinator: "127.0.0.1:1\x00", Markers: memory.New()})
	if err == nil {
		t.Error("a target that cannot be parsed was taken")
	}
}

// TestTheSDKIsLight: importing the SDK brings neither Redis nor AMQP.
func TestTheSDKIsLight(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".", "./marker/memory").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for dep := range strings.Lines(string(out)) {
		for _, heavy := range []string{"redis", "amqp", "cron", "prometheus", "halfmsg"} {
			if strings.Contains(dep, heavy) {
				t.Errorf("the SDK pulls in %s", dep)
			}
		}
	}
}
