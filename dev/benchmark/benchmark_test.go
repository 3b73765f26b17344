package benchmark_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/benchmark"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/test/servers"
)

// TestBenchMeasuresRealCoordinator runs both modes, an open loop with silence and rollbacks, and an interrupt.
func TestBenchMeasuresRealCoordinator(t *testing.T) {
	t.Parallel()
	redis, rabbit := servers.Redis(t), servers.RabbitMQ(t)
	where := []string{"--redis.url=" + redis.URL(), "--amqp.url=" + rabbit.URL}
	addr, stop := serve(t, where...)
	defer stop()
	common := append([]string{"--server=" + addr, "--output=json", "--warmup=100ms", "--callers=20"}, where...)
	for name, args := range map[string][]string{
		"gathered": {"--for=500ms"},
		"unary":    {"--for=3s", "--mode=unary", "--queue=classic", "--consume=after", "--producers=2"},
		"offered":  {"--for=1s", "--rate=200", "--silent=0.1", "--rollback=0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			result := run(append(common, args...)...)
			var report bench.Report
			if err := json.Unmarshal([]byte(result.out), &report); err != nil || result.status != 0 {
				t.Fatalf("status %d, %v: %s%s", result.status, err, result.out, result.err)
			}
			b := report.Balance
			if report.Messages == 0 || report.Failed > 0 || !b.Even() || b.Copies > 0 || b.Delivered != b.Committed {
				t.Errorf("got %s", result.out)
			}
			if report.SubmitToAck == nil || report.SubmitToAck.P50 <= 0 || report.HalfToAck.P50 < report.SubmitToAck.P50 {
				t.Fatalf("times are wrong: %s", result.out)
			}
			if (report.SubmitToDelivery != nil) != (name != "unary") {
				t.Errorf("what is consumed afterwards has no time, and the others have: %s", result.out)
			}
			// Of the 200 that are due while it is measured seven tenths are submitted, however busy the machine is.
			timed := report.SubmitToAck.N
			if name == "offered" && (b.Silent < 10 || b.RolledBack < 20 || timed < 135 || timed > 145) {
				t.Errorf("shares or rate are wrong: %s", result.out)
			}
			for _, process := range []string{"coordinator", "Redis", "RabbitMQ", "producer"} {
				if report.CPU[process] <= 0 || report.Memory[process] == 0 {
					t.Errorf("nothing is told of %s: %s", process, result.out)
				}
			}
			nothingIsLeft(t, addr, rabbit, report)
		})
	}
}

// nothingIsLeft fails when a run has left its queue or a message.
func nothingIsLeft(t *testing.T, addr string, rabbit *servers.Vhost, report bench.Report) {
	t.Helper()
	connection, err := amqp.Dial(rabbit.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.QueueDeclarePassive(report.Settings.Name, true, false, false, false, nil); err == nil {
		t.Errorf("the queue %s is still there", report.Settings.Name)
	}
	for _, state := range []string{"pending", "sendable", "abandoned", "dead"} {
		left := operate("list", "--server="+addr, "--state="+state, "--producer="+report.Settings.Name+".0", "--output=json")
		if left.status != 0 || strings.Contains(left.out, `"id"`) {
			t.Errorf("%s is left: %s%s", state, left.out, left.err)
		}
	}
}

// A load of 20 a second for 3 s is of 60 messages: 12 more warm it up, and one is tried first.
func TestBenchWritesTheAnnouncedAmount(t *testing.T) {
	t.Parallel()
	redis, rabbit := servers.Redis(t), servers.RabbitMQ(t)
	where := []string{"--redis.url=" + redis.URL(), "--amqp.url=" + rabbit.URL}
	addr, stop := serve(t, where...)
	defer stop()
	result := run(append([]string{"--server=" + addr, "--output=json", "--rate=20", "--for=3s"}, where...)...)
	result.want(t, 0, "{", "msghandler-bench writes about 72 messages (20 a second for 3.6s), "+
		"to the Redis of the coordinators at "+addr+" and to queues msghandler-bench-* on RabbitMQ at ")
	var report bench.Report
	if err := json.Unmarshal([]byte(result.out), &report); err != nil {
		t.Fatal(err, result.out)
	}
	// What had no turn in time on a busy machine never began, so there may be fewer.
	if b := report.Balance; b.RolledBack != 1 || b.Committed == 0 || b.Committed > 73 {
		t.Errorf("got %s", result.out)
	}
	nothingIsLeft(t, addr, rabbit, report)
}

func TestInterruptedBenchReportsAndCleansUp(t *testing.T) {
	t.Parallel()
	redis, rabbit := servers.Redis(t), servers.RabbitMQ(t)
	where := []string{"--redis.url=" + redis.URL(), "--amqp.url=" + rabbit.URL}
	addr, stop := serve(t, where...)
	defer stop()
	ctx, interrupt := context.WithCancel(t.Context())
	out, log := &servers.Log{}, &servers.Log{}
	ended := make(chan int, 1)
	go func() {
		ended <- benchmark.Run(ctx, commandline.Process{
			Args: append([]string{
				"--server=" + addr, "--output=json", "--warmup=10ms", "--for=1h", "--callers=20", "--silent=0.2",
			}, where...),
			In: strings.NewReader(""), Out: out, Err: log,
		})
	}()
	if done := operate("tail", "--server="+addr, "--state=done", "--limit=50"); done.status != 0 {
		t.Fatal(done.err)
	}
	interrupt()
	if status := <-ended; status != 0 {
		t.Fatalf("status %d: %s", status, log.String())
	}
	var report bench.Report
	err := json.Unmarshal([]byte(out.String()), &report)
	if err != nil || !report.Balance.Even() || report.Balance.Silent == 0 {
		t.Fatalf("got %s, %v", out.String(), err)
	}
	nothingIsLeft(t, addr, rabbit, report)
}

func TestRefusedBenchNamesTheRemedy(t *testing.T) {
	t.Parallel()
	redis, rabbit := servers.Redis(t), servers.RabbitMQ(t)
	where := []string{"--redis.url=" + redis.URL(), "--amqp.url=" + rabbit.URL}
	addr, stop := serve(t, append(where, "--callbacks.allow=*.orders.svc:9000")...)
	defer stop()
	run(append([]string{"--server=" + addr}, where...)...).want(t, 1, "", "add the address to callbacks.allow")
	run(append([]string{"--server=127.0.0.1:1", "--mode=unary"}, where...)...).want(t, 1, "", "no coordinator accepted")
}

func TestBenchRefusesWrongValues(t *testing.T) {
	t.Parallel()
	for arguments, want := range map[string]string{
		"--silent=0.9 --rollback=0.2": "from 0 to 1 together", "--silent=NaN": "from 0 to 1 together",
		"--mode=unary --callers=10001 --producers=2": "raise the number of producers",
		"--rate=-1": "none may be negative", "--callers=-1": "none may be negative", "--warmup=-1s": "none may be negative",
		"--for=-1s": "none may be negative", "--queues=1001": "from 1 to 1000",
		"--producers=2 --target=a:1": "the address of one producer",
		"--body=0":                   "--body: more than none", "--for=0": "--for: more than none",
		"--mode=fast":       "--mode must be one of",
		"--queue=stream":    "--queue must be one of",
		"--consume=never":   "--consume must be one of",
		"--listen=nonsense": "write host:port", "--target=nonsense": "write host:port",
		"--server=a:1,b": "write host:port",
	} {
		run(strings.Fields(arguments)...).want(t, 2, "", want)
	}
}
