package msghandlertest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/dev/embedded"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	anyPort = "127.0.0.1:0"
	// poll is the first pause between two looks at a state that is waited for, and slowPoll the longest: looks take time
	// from the coordinator of a slow machine.
	poll, slowPoll = 5 * time.Millisecond, 50 * time.Millisecond
	// readyWithin is for slow machines: a coordinator is ready within a second elsewhere.
	readyWithin = 30 * time.Second
	// leaseTime bounds how long Advance waits for the work under way.
	leaseTime = time.Second
)

// defaults are the keys of the configuration with another value than in serve: a test does not wait for seconds.
var defaults = map[string]string{
	"grpc.addr":          anyPort,
	"http.addr":          anyPort,
	"callbacks.allow":    "127.0.0.1:*,[::1]:*,localhost:*",
	"callbacks.networks": "127.0.0.0/8,::1/128",
	"confirm.schedule":   "@every 50ms",
	"confirm.after":      "250ms",
	"confirm.backoff":    "100ms,200ms,500ms",
	"confirm.attempts":   "5",
	"send.schedule":      "@every 50ms",
	"send.backoff":       "50ms,100ms",
	"shutdown.grace":     "2s",
}

// Option changes what Start starts.
type Option func(*options)

type options struct {
	keys    map[string]string
	timeout time.Duration
	logger  *slog.Logger
}

// WithConfig sets a key of the coordinator's configuration, such as WithConfig("confirm.after", "1h") or
// WithConfig("producers.orders.trust", "true"). docs/reference/configuration.md lists the keys. Start sets redis.url
// and amqp.url itself.
func WithConfig(key, value string) Option { return func(o *options) { o.keys[key] = value } }

// WithTimeout is how long Wait, WaitState and WaitIdle wait before the test fails. Default: 10 s.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithLogger gets the coordinator's log. Default: its warnings and errors go to the output of the test.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

// Coordinator is a running coordinator with its servers. Its methods may be called concurrently, except Kill and
// Restart.
type Coordinator struct {
	options  options
	settings config.Config

	redis     *embedded.Redis
	broker    *amqpbroker.Broker
	brokerURL string
	toRedis   *pipe
	toBroker  *pipe

	gate    *gate
	front   *front
	server  *grpc.Server
	faults  *faults
	capture *capture
	serving sync.WaitGroup

	running *instance
}

// instance is one run of the coordinator.
type instance struct {
	app    *app.App
	conn   *grpc.ClientConn
	ended  sync.WaitGroup
	failed error
}

// Start starts a coordinator and stops it when the test ends. The test fails at once if an option is wrong.
func Start(t testing.TB, with ...Option) *Coordinator {
	t.Helper()
	c := &Coordinator{
		options: options{
			keys: maps.Clone(defaults), timeout: 10 * time.Second,
		},
		faults: &faults{},
	}
	log := &testLog{to: t.Output()}
	c.options.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	for _, o := range with {
		o(&c.options)
	}
	c.capture = newCapture(c.faults)
	t.Cleanup(func() {
		c.close(t)
		log.end()
	})
	if err := c.open(); err != nil {
		t.Fatalf("msghandlertest: %v", err)
	}
	c.start(t)
	return c
}

// open starts the embedded servers and the API in front of the coordinator.
func (c *Coordinator) open() (err error) {
	if c.redis, err = embedded.StartRedis(""); err != nil {
		return err
	}
	c.broker = amqpbroker.New(amqpbroker.Config{
		TakeAll: true, Judge: c.capture.judgePublished, Logger: slog.New(slog.DiscardHandler),
	})
	address, err := c.broker.Listen(anyPort)
	if err != nil {
		return err
	}
	c.brokerURL = "amqp://guest:guest@" + address + "/"
	if c.toRedis, err = newPipe(c.redis.Addr()); err != nil {
		return err
	}
	if c.toBroker, err = newPipe(address); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", anyPort)
	if err != nil {
		return err
	}
	c.gate = newGate(listener)
	c.front = &front{faults: c.faults}
	c.server = newServer(c.front)
	c.serving.Go(func() { _ = c.server.Serve(c.gate) }) // Stop ends it
	keys := maps.Clone(c.options.keys)
	keys["redis.url"] = "redis://" + c.toRedis.addr() + "/0"
	keys["amqp.url"] = "amqp://guest:guest@" + c.toBroker.addr() + "/"
	c.settings, err = config.Load(config.Sources{Flags: keys})
	return err
}

// close ends everything, as far as it was started.
func (c *Coordinator) close(t testing.TB) {
	c.assertFaultsHappened(t)
	c.capture.setBlocked(false)
	if c.running != nil {
		c.end(t)
	}
	if c.server != nil {
		c.server.Stop()
		c.serving.Wait()
		c.front.streams.Wait()
	}
	for _, p := range []*pipe{c.toRedis, c.toBroker} {
		if p != nil {
			p.close()
		}
	}
	if c.broker != nil {
		if err := c.broker.Close(); err != nil {
			t.Errorf("msghandlertest: close the broker: %v", err)
		}
	}
	if c.redis != nil {
		c.redis.Close()
	}
}

// assertFaultsHappened fails a test with a fault that never happened: what the test shows, it shows without the fault.
func (c *Coordinator) assertFaultsHappened(t testing.TB) {
	if t.Failed() {
		return
	}
	for _, f := range c.faults.missed() {
		t.Errorf("msghandlertest: the fault %v never happened, so this test shows nothing about it; "+
			"correct the fault, or end the test with ClearFaults", f)
	}
}

// reconnecting lets a client wait only shortly for a coordinator that refuses connections until it is ready.
var reconnecting = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           grpcbackoff.Config{BaseDelay: poll, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
	MinConnectTimeout: time.Second,
})

// start runs a coordinator on the servers and waits until it takes half messages and reaches its broker.
func (c *Coordinator) start(t testing.TB) {
	t.Helper()
	a, err := app.New(context.Background(), c.settings, app.Deps{Version: "msghandlertest", Logger: c.options.logger})
	if err != nil {
		t.Fatalf("msghandlertest: %v", err)
	}
	conn, err := grpc.NewClient(a.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), reconnecting,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(anySize)))
	if err != nil {
		t.Fatalf("msghandlertest: %v", err)
	}
	i := &instance{app: a, conn: conn}
	i.ended.Go(func() { i.failed = a.Run(context.Background()) })
	c.running = i
	c.front.to(conn)
	within(t, readyWithin, "the coordinator is ready", func(ctx context.Context) error {
		stats, err := adminv1.NewAdminServiceClient(conn).GetStats(ctx, &adminv1.GetStatsRequest{})
		if err != nil {
			return err
		}
		for _, b := range stats.GetBrokers() {
			if b.GetProblem() != "" && b.GetName() == "" {
				return fmt.Errorf("the broker: %s", b.GetProblem())
			}
		}
		return nil
	})
}

// end ends the running coordinator.
func (c *Coordinator) end(t testing.TB) {
	t.Helper()
	i := c.running
	c.running = nil
	c.front.to(nil)
	_ = i.app.Stop(context.Background()) // after Kill its servers are out of reach, and parts do not end in time
	i.ended.Wait()
	_ = i.conn.Close()
	if i.failed != nil {
		t.Errorf("msghandlertest: the coordinator has failed: %v", i.failed)
	}
}

// Addr is the coordinator's address, HOST:PORT, for producer.Config.Coordinator and for every client of gRPC. It stays
// the same when the coordinator is killed and restarted.
func (c *Coordinator) Addr() string { return c.gate.Addr().String() }

// BrokerURL is the address of the broker, amqp://..., for rabbitmqconsumer.Config. The user guest may do everything.
// Declare queues before the messages are published: earlier messages are in no queue.
func (c *Coordinator) BrokerURL() string { return c.brokerURL }

// until waits until try returns no error, and fails the test with the last error.
func (c *Coordinator) until(t testing.TB, what string, try func(ctx context.Context) error) {
	t.Helper()
	within(t, c.options.timeout, what, try)
}

func within(t testing.TB, timeout time.Duration, what string, try func(ctx context.Context) error) {
	t.Helper()
	if err := await(timeout, what, try); err != nil {
		t.Fatalf("msghandlertest: %v", err)
	}
}

// await waits until try returns no error, and returns the last error of try. A look that the end of the time has cut
// short says less than the look before.
func await(timeout time.Duration, what string, try func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var last error
	for pause := poll; ; pause = min(pause*3/2, slowPoll) {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil && status.Code(err) != codes.DeadlineExceeded {
			last = err
		}
		if backoff.Sleep(ctx, pause) != nil {
			return fmt.Errorf("not within %v: %s: %w", timeout, what, last)
		}
	}
}

// Disconnect cuts the connections of all producers to the coordinator, and lets nobody connect, until Reconnect. The
// coordinator itself runs on: it confirms and publishes.
func (c *Coordinator) Disconnect() { c.gate.shut() }

// Reconnect ends Disconnect.
func (c *Coordinator) Reconnect() { c.gate.open() }

// DisconnectBroker cuts the coordinator's connections to its broker, until ReconnectBroker. Messages wait as SENDABLE.
func (c *Coordinator) DisconnectBroker() { c.toBroker.gate.shut() }

// ReconnectBroker ends DisconnectBroker.
func (c *Coordinator) ReconnectBroker() { c.toBroker.gate.open() }

// BlockBroker has the broker take no message and acknowledge none, as in an alarm of memory, until UnblockBroker. The
// coordinator waits for send.confirm_timeout, 10 s by default; a later copy of the message is flagged.
func (c *Coordinator) BlockBroker() { c.capture.setBlocked(true) }

// UnblockBroker ends BlockBroker.
func (c *Coordinator) UnblockBroker() { c.capture.setBlocked(false) }

// Kill ends the coordinator as a power cut does: connections break, calls under way get no answer, nothing is handed
// back, and nothing is written any more. Messages and their states stay. Producers cannot connect until Restart.
func (c *Coordinator) Kill(t testing.TB) {
	t.Helper()
	if c.running == nil {
		t.Fatal("msghandlertest: Kill: the coordinator does not run")
	}
	for _, g := range []*gate{c.gate, c.toRedis.gate, c.toBroker.gate} {
		g.shut()
	}
	c.end(t)
}

// Restart starts another coordinator on the state of the one before, which is killed if it runs. The leases of the
// killed one end at once, for which the coordinator's clock is put forward by the longest lease (confirm.lease and
// send.lease, 30 s by default).
func (c *Coordinator) Restart(t testing.TB) {
	t.Helper()
	if c.running != nil {
		c.Kill(t)
	}
	c.redis.Advance(max(c.settings.Confirm.Lease, c.settings.Send.Lease))
	c.toRedis.gate.open()
	c.toBroker.gate.open()
	c.start(t)
	c.gate.open()
}

// Advance puts the coordinator's clock forward: delays, backoffs and receipts that end within d end now. The clocks of
// the test, of the producer and of its database stay. Leases end too, and a message whose lease ends before its
// acknowledgement is stored is published twice. Advance therefore waits first, for up to a second, until no call is
// under way and no message has a lease.
func (c *Coordinator) Advance(d time.Duration) {
	if api, err := c.operators(); err == nil {
		// What is held up on purpose, such as by BlockBroker, loses its lease.
		_ = await(leaseTime, "no message has a lease", func(ctx context.Context) error { return c.leased(ctx, api) })
	}
	c.redis.Advance(d)
}
