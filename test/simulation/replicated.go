package simulation

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/redis/redismarker"
	"github.com/msghandler/msghandler/test/faults"
)

// replicatedName is a producer of two processes, with markers in a Redis of their own. Both may run the business of one
// id. Neither is killed: such markers promise nothing about a process that dies between its commit and its marker.
const replicatedName = "replicated"

const (
	markersAddr = "10.0.0.4:6379"
	replicas    = 2
)

// replicated is the producer replicatedName. What breaks between the processes and their markers is left to the other
// producers: the markers of two runs are kept apart by this Redis alone.
type replicated struct {
	world   *World
	store   *miniredis.Miniredis
	sdks    []*producer.Producer
	clients []*goredis.Client
	servers []*grpc.Server
}

// startReplicated starts the producer.
func (w *World) startReplicated() error {
	p := &replicated{world: w, store: miniredis.NewMiniRedis()}
	first, err := p.store.Dial() // starts the server
	if err != nil {
		return err
	}
	_ = first.Close()
	at := w.Network.Host("markers", "10.0.0.4")
	at.unbroken = true
	if err := at.Serve(markersAddr, func(c net.Conn) { p.store.Server().ServeConn(c) }); err != nil {
		return err
	}
	for i := range replicas {
		if err := p.startReplica(i); err != nil {
			return err
		}
	}
	w.producers = append(w.producers, p)
	return nil
}

func (p *replicated) startReplica(i int) error {
	w := p.world
	host := w.Network.Host(fmt.Sprintf("%s.%d", replicatedName, i), fmt.Sprintf("10.2.0.%d", 30+i))
	client := goredis.NewClient(&goredis.Options{
		Addr: markersAddr, ContextTimeoutEnabled: true, DisableIdentity: true, Dialer: host.Dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	p.clients = append(p.clients, client)
	markers, err := redismarker.New(redismarker.Config{Client: client, Producer: replicatedName})
	if err != nil {
		return err
	}
	target := host.at.String() + ":7000"
	sdk, err := producer.New(producer.Config{
		Name: replicatedName, Coordinator: w.coordinators(), CallbackTarget: target, Markers: markers,
		Coordinators: producer.Coordinators{Anyone: true}, Logger: slog.New(w.log.handler(host.name)),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return host.Dial(ctx, "tcp", addr)
		})},
	})
	if err != nil {
		return err
	}
	listener, err := host.Listen(context.Background(), "tcp", target)
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(
		ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		return w.faulty.answering(ctx, replicatedName, in, next)
	}))
	sdk.Register(server)
	w.goInBackground(func() { _ = server.Serve(listener) })
	p.sdks, p.servers = append(p.sdks, sdk), append(p.servers, server)
	return nil
}

func (*replicated) name() string { return replicatedName }

func (*replicated) restart() {}

func (p *replicated) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for i, sdk := range p.sdks {
		_ = sdk.Close(ctx) // what is left behind is the coordinators' work
		p.servers[i].Stop()
		_ = p.clients[i].Close()
	}
	p.store.Close()
}

// markers implements producing. A second run that commits too leaves a marker anew, which expires.
func (*replicated) markers() []string { return nil }

// act implements producing. A business counts as committed when one of its runs says so at its end. A run that learns
// that its message was rolled back undoes its business.
func (p *replicated) act(id string) {
	w, key := p.world, replicatedName+"/"+id
	body := bytes.Repeat([]byte(id+" "), 1+w.Choices.Intn(key+" size", 200))
	headers := map[string]string{"order": id}
	w.Ledger.Sending(key, faults.NewContent(exchange, replicatedName, headers, body))
	m := producer.Message{ID: id, Exchange: exchange, RoutingKey: replicatedName, Headers: headers, Body: body}
	runs := 1 + w.Choices.Intn(key+" runs", replicas)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() { p.runOnce(i, key, m) })
	}
	all.Wait()
	w.Ledger.Decide(key, faults.RolledBack)
}

func (p *replicated) runOnce(i int, key string, m producer.Message) {
	w := p.world
	draw := func(what string) string { return fmt.Sprintf("%s run %d %s", key, i, what) }
	_ = sleep(w.life, within(w.Choices, draw("begins"), 0, 2*time.Second))
	err := p.sdks[i].Send(w.life, m, func(ctx context.Context) error {
		w.Ledger.Accepted(key)
		if err := sleep(ctx, within(w.Choices, draw("works"), 0, 3*time.Second)); err != nil {
			return err
		}
		if w.Choices.Intn(draw("refuses"), 3) == 0 {
			return errRefused
		}
		return nil
	})
	w.Ledger.Noted(key, "producer", fmt.Sprintf("Send of replica %d returns: %v", i, err))
	if err == nil {
		w.Ledger.Decide(key, faults.Committed)
	}
}
