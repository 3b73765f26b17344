package app

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peerstats"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// The names of the checks, as /readyz shows them.
const (
	checkRedis    = "redis"
	checkSettings = "redis settings"
	checkWrites   = "redis writes"
	checkAPI      = "api"
	checkRabbitMQ = "rabbitmq"
	checkConfirm  = "confirm loop"
	checkSend     = "send loop"
)

// required are the checks without which no half message can be accepted. Everything else, the broker above all, is made
// up for later: the message waits in Redis.
var required = []string{checkRedis, checkSettings, checkWrites, checkAPI}

// degrading are the other checks.
func (a *App) degrading() []string {
	names := []string{checkRabbitMQ}
	for _, name := range a.settings.BrokerNames() {
		names = append(names, checkOfBroker(name))
	}
	for _, name := range a.settings.OutboxNames() {
		names = append(names, checkOfOutbox(name))
	}
	return append(names, checkConfirm, checkSend)
}

// errNotOpen is the result of a check of a part that is not open yet.
var errNotOpen = errors.New("not open yet")

// checks holds the checks of the open parts.
type checks struct {
	mu  sync.Mutex
	run map[string]func(ctx context.Context) error
}

// set makes a part answer for itself from now on.
func (c *checks) set(name string, run func(ctx context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		c.run = map[string]func(ctx context.Context) error{}
	}
	c.run[name] = run
}

// named returns the check of a part, which may not be open yet.
func (c *checks) named(name string) console.Check {
	return console.Check{Name: name, Run: func(ctx context.Context) error {
		c.mu.Lock()
		run := c.run[name]
		c.mu.Unlock()
		if run == nil {
			return errNotOpen
		}
		return run(ctx)
	}}
}

// openConsole builds the console, the first part to open and the last to close.
func (a *App) openConsole(visitors login.Config, notice string) {
	a.metrics.Build(a.version, a.instance)
	a.metrics.Letters(a.letterCounts)
	var all []console.Check
	for _, name := range slices.Concat(required, a.degrading()) {
		check := a.checks.named(name)
		check.Required = slices.Contains(required, name)
		if name == checkRedis {
			check.Note = a.regression
		}
		all = append(all, check)
	}
	a.console = console.New(console.Config{
		Instance: a.instance,
		Version:  a.version,
		Metrics:  a.metrics,
		Logger:   a.logger,
		Checks:   all,
		Admin:    a.admin,
		Hosts:    a.settings.HTTP.Names(),
		ReadOnly: a.settings.HTTP.ReadOnly,
		Login:    visitors,
		Notice:   notice,
		Refused:  a.recordConsoleRefusal,

		HideBodies:   !a.settings.HTTP.Bodies,
		Findings:     func() []*adminv1.Finding { return a.findings(time.Now()) },
		Coordinators: a.fleetStats,
		Charts:       charts{app: a},
		Sums:         func() peerstats.Sums { return a.peers.Sums(time.Now()) },
		Owners: func(ctx context.Context) (halfmsg.Owners, error) {
			if store := a.store.Load(); store != nil {
				return store.Owners(ctx)
			}
			return halfmsg.Owners{}, errNotOpen
		},
		Stats: func(ctx context.Context) ([]halfmsg.Stat, error) {
			if store := a.store.Load(); store != nil {
				return store.Stats(ctx)
			}
			return nil, errNotOpen
		},
	})
	a.closeWith(closer{name: "console", close: func(ctx context.Context) error {
		return errors.Join(a.console.Stop(ctx), closeListener(a.consoleListener))
	}})
}

// ownAddresses are the addresses of the open listeners.
func (a *App) ownAddresses() (own []netip.AddrPort) {
	for _, listener := range []net.Listener{a.apiListener, a.consoleListener} {
		if tcp, is := listener.(*net.TCPListener); is {
			own = append(own, tcp.Addr().(*net.TCPAddr).AddrPort())
		}
	}
	return own
}

// rejectUntilReady accepts connections and closes them at once, until stop is called. So a client learns at once that
// the coordinator is unavailable. Without accept, clients would wait.
func rejectUntilReady(door net.Listener) (stop func()) {
	tcp, is := door.(*net.TCPListener)
	if !is {
		return func() {}
	}
	var accepting lifecycle.Group
	accepting.Go(func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	return func() {
		// A deadline in the past wakes Accept and leaves the listener open.
		_ = tcp.SetDeadline(time.Now())
		_ = accepting.Wait(context.Background())
		_ = tcp.SetDeadline(time.Time{})
	}
}
