package bench

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// coordinator answers half messages at once, and Submits after a delay or with an error.
type coordinator struct {
	takes time.Duration
	fails bool
}

func (c coordinator) Invoke(ctx context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	switch reply := reply.(type) {
	case *pb.SendHalfMessageResponse:
		reply.State = pb.State_STATE_PENDING
	case *pb.SubmitResponse:
		reply.State = pb.State_STATE_DONE
		if c.fails {
			return errors.New("no")
		}
		return backoff.Sleep(ctx, c.takes)
	}
	return nil
}

func (coordinator) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("there are no streams")
}

func (coordinator) Close() error { return nil }

// loaded puts a load of 2 s on a coordinator and returns the report; the load includes a warm-up of 1 s.
func loaded(t *testing.T, c coordinator, load Config) (report Report) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		load.Coordinators, load.AMQPURL, load.Mode, load.Duration = []string{"none"}, "none", Unary, 2*time.Second
		config, err := load.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		queue := []string{"none"}
		s := &sender{mode: Unary, queues: queue, bodies: order.New(0), markers: memory.New(), conns: []connection{c}}
		r := &run{config: config, queues: &queues{names: queue}, producers: []*sender{s}, latencies: newLatencies()}
		r.load(t.Context())
		report = r.report()
	})
	return report
}

func TestDueMessageIsTimed(t *testing.T) {
	t.Parallel()
	// All messages end after the window has closed. In the closed loop each caller begins its second message within the
	// window.
	for name, tc := range map[string]struct {
		load Config
		want int64
	}{
		"open":   {Config{Rate: 100}, 200},
		"closed": {Config{Callers: 10, Warmup: 4 * time.Second}, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := loaded(t, coordinator{takes: 5 * time.Second}, tc.load)
			if report.HalfToAck == nil || report.HalfToAck.N != tc.want || report.HalfToAck.P50 < 4990 {
				t.Errorf("timed %+v; want %d messages of 5 s", report.HalfToAck, tc.want)
			}
		})
	}
}

func TestMessageDueOutsideWindowIsUntimed(t *testing.T) {
	t.Parallel()
	report := loaded(t, coordinator{takes: time.Millisecond}, Config{Rate: 100, Warmup: 5 * time.Second})
	if report.HalfToAck == nil || report.HalfToAck.N != 200 || report.Unbegun != 0 || report.Failed != 0 {
		t.Errorf("timed %+v, %d failed, %d never began; want the 200 of 2 s", report.HalfToAck, report.Failed, report.Unbegun)
	}
}

func TestReportCountsUntimedMessages(t *testing.T) {
	t.Parallel()
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		report := loaded(t, coordinator{fails: true}, Config{Rate: 100})
		if report.HalfToAck != nil || report.Failed != 300 {
			t.Errorf("timed %+v, %d failed; want none and 300", report.HalfToAck, report.Failed)
		}
	})
	t.Run("never begun", func(t *testing.T) {
		t.Parallel()
		// One and a half times maxOpen messages are due, and none ends in time.
		report := loaded(t, coordinator{takes: 10 * time.Second}, Config{Rate: maxOpen / 2})
		if report.Unbegun != maxOpen/2 || report.HalfToAck == nil || report.HalfToAck.N != maxOpen/2 {
			t.Errorf("timed %+v, %d never began; want half of %d each", report.HalfToAck, report.Unbegun, maxOpen)
		}
	})
}

func TestInterruptEndsOpenLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithTimeout(t.Context(), time.Second)
		defer interrupt()
		s := &sender{
			mode: Unary, queues: []string{"none"}, bodies: order.New(0), markers: memory.New(),
			conns: []connection{coordinator{}},
		}
		begun := time.Now()
		r := &run{
			config: Config{Rate: 100}, producers: []*sender{s}, latencies: newLatencies(),
			window: window{closes: begun.Add(time.Hour)},
		}
		r.openLoop(ctx)
		if took := time.Since(begun); took != time.Second || r.unbegun != 0 {
			t.Errorf("the load took %v, %d never began", took, r.unbegun)
		}
	})
}

// The report of an uneven run is written while late deliveries still come in.
func TestReportDuringDeliveriesIsConsistent(t *testing.T) {
	t.Parallel()
	r := &run{queues: &queues{names: []string{"none"}}, latencies: newLatencies(), tally: tally{prefix: "b-"}}
	const messages = 1000
	for range messages {
		r.tally.submit(r.tally.begin(committed), time.Now())
	}
	var delivering sync.WaitGroup
	delivering.Go(func() {
		for n := range messages {
			r.delivered(r.tally.id(n), time.Now())
		}
	})
	for r.tally.counts().missing > 0 {
		r.report()
	}
	if timed := r.report().SubmitToDelivery.N; timed != messages {
		t.Errorf("of %d that were counted, %d were timed", messages, timed)
	}
	delivering.Wait()
}
