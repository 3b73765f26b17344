package bare_test

import (
	"context"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/test/bench/bare"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// start serves a reference; the result is its address, and the function that stops the reference.
func start(t *testing.T, config bare.Config) (address string, stop func()) {
	t.Helper()
	reference, err := bare.New(config)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := reference.Serve(ctx, listener); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); serving.Wait() })
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func TestReferenceDeliversEveryMessage(t *testing.T) {
	t.Parallel()
	redis, rabbit := servers.Redis(t), servers.RabbitMQ(t)
	for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
		address, stop := start(t, bare.Config{RedisURL: redis.URL(), AMQPURL: rabbit.URL, Prefix: "bare-test"})
		report, err := bench.Run(t.Context(), bench.Config{
			Coordinators: []string{address}, AMQPURL: rabbit.URL, Mode: mode, Callers: 20,
			Warmup: 10 * time.Millisecond, Duration: 300 * time.Millisecond,
		})
		b := report.Balance
		if err != nil || report.Failed > 0 || !b.Even() || b.Copies > 0 || b.Delivered == 0 {
			t.Errorf("%s: %+v, %v", mode, report, err)
		}
		stop()
		if keys := redis.CLI("KEYS", "*"); strings.TrimSpace(keys) != "" {
			t.Errorf("%s left %s", mode, keys)
		}
	}
}

func TestLoadSpreadsOverQueues(t *testing.T) {
	t.Parallel()
	rabbit := servers.RabbitMQ(t)
	address, _ := start(t, bare.Config{RedisURL: servers.Redis(t).URL(), AMQPURL: rabbit.URL, Prefix: "queues-test"})
	for _, late := range []bool{false, true} {
		report, err := bench.Run(t.Context(), bench.Config{
			Coordinators: []string{address}, AMQPURL: rabbit.URL, Mode: bench.Unary, Callers: 10, Queues: 3, ConsumeAfter: late,
			Warmup: 10 * time.Millisecond, Duration: 300 * time.Millisecond,
		})
		counts := slices.Sorted(maps.Values(report.Deliveries))
		if err != nil || !report.Balance.Even() || len(counts) != 3 {
			t.Fatalf("%+v, %v", report, err)
		}
		// The message of tryOut, which was rolled back, had its turn as well.
		if counts[0] == 0 || counts[2]-counts[0] > 2 {
			t.Errorf("deliveries: %v", report.Deliveries)
		}
	}
}

// A load must notice a coordinator that reports messages as done without publishing them.
func TestLoadDetectsMissingPublishes(t *testing.T) {
	t.Parallel()
	rabbit := servers.RabbitMQ(t)
	address, _ := start(t, bare.Config{})
	report, err := bench.Run(t.Context(), bench.Config{
		Coordinators: []string{address}, AMQPURL: rabbit.URL, Mode: bench.Unary, Callers: 4,
		Warmup: 10 * time.Millisecond, Duration: 100 * time.Millisecond, Settle: 100 * time.Millisecond,
	})
	if report.Balance.Even() || report.Balance.Lost != report.Balance.Committed || report.Balance.Lost == 0 {
		t.Errorf("the balance is %+v", report.Balance)
	}
	if err == nil || !strings.Contains(err.Error(), "are not discarded") {
		t.Errorf("the error names no remaining messages: %v", err)
	}
}
