package app

import (
	"context"
	"strings"
	"sync"

	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console"
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
		names = append(names, cause.BrokerSubject(name))
	}
	for _, name := range a.settings.OutboxNames() {
		names = append(names, checkOfOutbox(name))
	}
	return append(names, checkConfirm, checkSend)
}

// partOf is the part that a check is about.
func (a *App) partOf(check string) cause.Part {
	kind, name, _ := strings.Cut(check, " ")
	switch kind {
	case checkRedis:
		return cause.Redis
	case checkRabbitMQ:
		return cause.Part{System: checkRabbitMQ, Key: keyOfBroker("")}
	case "broker":
		return cause.Part{System: brokers.System(a.settings.Brokers[name].URL), Name: name, Key: keyOfBroker(name)}
	case "outbox":
		return cause.Part{System: "sql", Name: name, Key: "outbox." + name + ".dsn"}
	}
	return cause.Part{}
}

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
			return cause.ErrNotOpen
		}
		return run(ctx)
	}}
}
