package dev_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// everything is a running msghandler-dev.
type everything struct {
	cmd                        *exec.Cmd
	out, log                   *servers.Log
	grpc, console, amqp, redis string
}

// freePorts returns ports of 127.0.0.1 at which no program listens now.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer free.Close()
		ports = append(ports, strconv.Itoa(free.Addr().(*net.TCPAddr).Port)) //nolint:forcetypeassert // it is TCP
	}
	return ports
}

func startDev(t *testing.T, args ...string) *everything {
	t.Helper()
	ports := freePorts(t, 4)
	d := &everything{
		out: &servers.Log{}, log: &servers.Log{}, grpc: ports[0], console: ports[1], amqp: ports[2], redis: ports[3],
	}
	d.cmd = exec.Command(programs.Path("msghandler-dev"), append([]string{
		"--grpc-port=" + d.grpc, "--console-port=" + d.console, "--amqp-port=" + d.amqp, "--redis-port=" + d.redis,
	}, args...)...)
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	d.cmd.Stdout, d.cmd.Stderr = d.out, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		if t.Failed() {
			t.Logf("%s\n%s", d.out, d.log)
		}
	})
	servers.Eventually(t, 20*time.Second, "msghandler-dev prints its banner", func() bool {
		return strings.Contains(d.out.String(), "Ctrl-C ends all of it")
	})
	return d
}

// doctorOf runs the command that the banner names, without anything else.
func (d *everything) doctorOf(t *testing.T) (said string, status int) {
	t.Helper()
	_, line, found := strings.Cut(d.out.String(), "msghandler doctor ")
	if !found {
		t.Fatalf("the banner names no doctor:\n%s", d.out)
	}
	line, _, _ = strings.Cut(line, "\n")
	doctor := exec.Command(programs.Path("msghandler"), append([]string{"doctor"}, strings.Fields(line)...)...)
	doctor.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, _ := doctor.CombinedOutput() // the status is judged by the test
	return string(out), doctor.ProcessState.ExitCode()
}

// The first doctor of a newcomer finds nothing, and says that nothing is durable.
func TestDoctorFindsNothingAtStart(t *testing.T) {
	t.Parallel()
	said, status := startDev(t).doctorOf(t)
	if status != 0 || strings.Contains(said, "name: ") || strings.Count(said, "OK ") != 5 {
		t.Errorf("exit status %d:\n%s", status, said)
	}
	if !strings.Contains(said, "nothing in it is durable") ||
		!strings.Contains(said, "the defaults of callbacks.allow are examined") {
		t.Errorf("the doctor hides what is missing:\n%s", said)
	}
}

// bind declares an exchange and a queue with a connection of its own, and returns the deliveries.
func (d *everything) bind(t *testing.T, exchange, key, queue string) <-chan amqp.Delivery {
	t.Helper()
	conn, err := amqp.Dial("amqp://guest:guest@127.0.0.1:" + d.amqp + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	err = channel.ExchangeDeclare(exchange, "topic", true, false, false, false, nil)
	if err == nil {
		_, err = channel.QueueDeclare(queue, true, false, false, false, nil)
	}
	if err == nil {
		err = channel.QueueBind(queue, key, exchange, false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := channel.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return deliveries
}

// send sends a message as a service would that uses the SDK; host is how the service names its own address.
func (d *everything) send(t *testing.T, host string, message producer.Message) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: "127.0.0.1:" + d.grpc, CallbackTarget: net.JoinHostPort(host, port),
		Markers:      memory.New(),
		Coordinators: producer.Coordinators{Anyone: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	p.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = p.Close(context.Background())
		server.Stop()
		serving.Wait()
	})
	return p.Send(t.Context(), message, func(context.Context) error { return nil })
}

func TestProducerAndConsumerAreServed(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	deliveries := d.bind(t, "orders", "order.paid", "payments")
	for _, host := range []string{"127.0.0.1", "localhost"} {
		message := producer.Message{ID: "1-" + host, Exchange: "orders", RoutingKey: "order.paid", Body: []byte(host)}
		if err := d.send(t, host, message); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-deliveries:
			if string(got.Body) != host || got.MessageId != message.ID {
				t.Errorf("got %s with id %s", got.Body, got.MessageId)
			}
		case <-time.After(20 * time.Second):
			t.Fatal("nothing is delivered")
		}
	}
	response, err := http.Get("http://127.0.0.1:" + d.console + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !bytes.Contains(page, []byte("<html")) {
		t.Errorf("the console answers %s, %v: %s", response.Status, err, page)
	}
	operate("stats", "--server=127.0.0.1:"+d.grpc).want(t, 0, "pending", "")
	operate("config", "--server=127.0.0.1:"+d.grpc).want(t, 0, "redis://127.0.0.1:"+d.redis, "")
	redis, err := net.Dial("tcp", "127.0.0.1:"+d.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer redis.Close()
	answer := make([]byte, 7)
	if _, err := io.WriteString(redis, "*1\r\n$4\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(redis, answer); err != nil || string(answer) != "+PONG\r\n" {
		t.Errorf("the embedded Redis answers %q, %v", answer, err)
	}
	for _, part := range []string{
		"NOTHING IS DURABLE", "127.0.0.1:" + d.grpc, "http://127.0.0.1:" + d.console + "/",
		"amqp://guest:guest@127.0.0.1:" + d.amqp + "/", "redis-cli -p " + d.redis,
		"msghandler tail --server=127.0.0.1:" + d.grpc,
	} {
		if !strings.Contains(d.out.String(), part) {
			t.Errorf("the banner lacks %q", part)
		}
	}
}

// A message to a queue of --queue arrives, and one to another queue is returned, as by RabbitMQ.
func TestNamedQueuesAreMade(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--queue=paid", "--queue=a,b", "--send.backoff=10ms")
	for id, queue := range map[string]string{"1": "paid", "2": "a,b", "3": "other"} {
		if err := d.send(t, "127.0.0.1", producer.Message{ID: id, RoutingKey: queue}); err != nil {
			t.Fatal(err)
		}
	}
	server := "--server=127.0.0.1:" + d.grpc
	for id, text := range map[string]string{"1": "done", "2": "done", "3": "NO_ROUTE"} {
		servers.Eventually(t, 20*time.Second, "message "+id+" shows "+text, func() bool {
			return strings.Contains(operate("show", "orders/"+id, server).out, text)
		})
	}
}

func TestSignalsStopAllParts(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		d := startDev(t)
		if err := d.cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("%s: %v", signal, err)
		}
	}
}

func TestTakenPortsAreNamed(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for flag, part := range map[string]string{
		"grpc-port": "coordinator", "console-port": "console", "amqp-port": "AMQP broker", "redis-port": "Redis",
	} {
		free := freePorts(t, 4)
		// Of a flag that is given twice the last counts.
		got := run("--grpc-port="+free[0], "--console-port="+free[1], "--amqp-port="+free[2],
			"--redis-port="+free[3], "--"+flag+"="+port)
		got.want(t, 1, "", "the "+part+" cannot have port "+port)
		if !strings.Contains(got.err, "choose another port with --"+flag) || strings.Contains(got.err, "level=") {
			t.Errorf("the error names no remedy, or something has started: %s", got.err)
		}
	}
}

func TestWrongUsageIsRefused(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"--redis.url=redis://a:1":            "the Redis itself; change its port with --redis-port",
		"--set=amqp.url=amqp://a":            "--amqp.url: msghandler-dev runs the AMQP broker itself",
		"--grpc-port=0":                      "--grpc-port=0: a port is a number from 1 to 65535",
		"--amqp-port=70000":                  "--amqp-port=70000",
		"--redis-port=7000 --amqp-port=7000": "are both 7000",
		"--confirm.after=never":              "confirm.after",
		"--callbacks.allow=nonsense":         "callbacks.allow",
		"extra":                              "unexpected argument extra",
	} {
		run(strings.Fields(typed)...).want(t, 2, "", want)
	}
}

func TestFlagsCompleteWithoutCommand(t *testing.T) {
	t.Parallel()
	run("__complete", "--", "--grpc-p").want(t, 0, "--grpc-port\t", "")
	run("__complete", "--", "demo", "--o").want(t, 0, "--orders\t", "")
}
