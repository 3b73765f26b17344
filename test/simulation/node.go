package simulation

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

// Node is a place for a coordinator, at which processes come and go.
type Node struct {
	world *World
	// Number is from 0, and Address is where producers reach it.
	Number  int
	Address string

	mu sync.Mutex
	// generation counts the processes.
	generation int
	// flags are the settings, and reload has the process read them again.
	flags   map[string]string
	reload  chan struct{}
	process *process
}

// process is one run of a coordinator.
type process struct {
	host *Host
	app  *app.App
	// database is the way to the outbox.
	database *modeldb.Address
	// over is closed when Run has returned.
	over chan struct{}
}

// settings are those of a coordinator at a host.
func (w *World) settings(host string) map[string]string {
	keys := map[string]string{
		"grpc.addr": host + ":9090", "http.addr": host + ":9091", "access.anonymous": "true",
		"redis.url":          "redis://" + redisAddr + "/0?client_name=coordinator",
		"amqp.url":           "amqp://guest:guest@" + brokerAddr + "/?heartbeat=" + fmt.Sprint(w.drawn.heartbeat.Seconds()),
		"callbacks.allow":    "*:*",
		"callbacks.networks": "10.0.0.0/8",
		"shutdown.grace":     "5s",
	}
	if w.outbox != nil {
		keys["outbox.shop.poll"] = w.drawn.poll.String()
		keys["outbox.shop.dsn"], keys["outbox.shop.producer"] = "postgres://shop@10.0.0.3/shop", insertingName
	}
	maps.Copy(keys, w.drawn.keys)
	maps.Copy(keys, w.options.Settings)
	return keys
}

// start starts a process. It must not run.
func (n *Node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := fmt.Sprintf("10.1.0.%d", n.Number+1)
	n.flags, n.reload = n.world.settings(at), make(chan struct{})
	settings, err := config.Open(config.Sources{Flags: n.flags})
	if err != nil {
		return err
	}
	p := &process{
		host: n.world.Network.Host(fmt.Sprintf("n%d.%d", n.Number, n.generation), at), over: make(chan struct{}),
	}
	n.generation++
	if n.world.outbox != nil {
		p.database = n.world.outbox.address()
	}
	deps := app.Deps{
		Version: "simulation", Network: p.host.Network(), Bounds: app.Bounds{
			Schedules: n.world.drawn.schedules, Unwatched: n.world.drawn.rest > 0, Rest: n.world.drawn.rest,
		},
		OpenDatabase: func(string) *sql.DB { return n.world.databases.open(p.database) },
		Logger:       slog.New(n.world.log.handler(p.host.name)),
	}
	if n.world.hasFault(reloadsName) {
		deps.Configuration, deps.Reload = settings, n.reload
	}
	p.app, err = app.New(context.Background(), settings.Config, deps)
	if err != nil {
		return err
	}
	n.process = p
	go func() {
		defer close(p.over)
		if err := p.app.Run(context.Background()); err != nil && p.host.Alive() {
			n.world.report("ENDED: coordinator %d ends by itself: %v", n.Number, err)
		}
	}()
	return nil
}

// processes counts the processes that were started here.
func (n *Node) processes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.generation
}

// Host is the host of the running process.
func (n *Node) Host() *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process.host
}

// Kill ends the process as kill -9 does: nothing more gets in or out. Its goroutines end later, without effect.
func (n *Node) Kill() {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	p.host.Kill()
	if p.database != nil {
		p.database.Kill(0)
	}
	n.world.goInBackground(func() { _ = p.app.Stop(context.Background()) })
}

// Restart starts another process in the place of a killed one.
func (n *Node) Restart() {
	if err := n.start(); err != nil {
		n.world.report("%v", fmt.Errorf("coordinator %d does not start: %w", n.Number, err))
	}
}

// end stops the process as SIGTERM does.
func (n *Node) end(within time.Duration) {
	n.mu.Lock()
	p := n.process
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := p.app.Stop(ctx); err != nil {
		n.world.note("coordinator %d ends late: %v", n.Number, err)
	}
	<-p.over
}
