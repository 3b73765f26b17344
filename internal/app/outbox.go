package app

import (
	"context"

	"github.com/msghandler/msghandler/internal/server/policy"
	"github.com/msghandler/msghandler/internal/sqloutbox"
)

// openOutboxes starts to relay the outboxes of the configured databases. A database may be away: the coordinator serves
// without it. The relays end as soon as the coordinator is to stop, and settle beside the closing of other parts.
func (a *App) openOutboxes(opened []openBroker) error {
	var all []*sqloutbox.Outbox
	byName := map[string]*sqloutbox.Outbox{}
	// Even after an error: the outboxes before the wrong one are open.
	a.closeWith(closer{name: "outbox", share: outboxShare, close: func(ctx context.Context) error {
		return sqloutbox.CloseAll(ctx, all)
	}})
	for _, name := range a.settings.OutboxNames() {
		o, err := sqloutbox.Open(a.life, sqloutbox.Config{
			Name:     name,
			Settings: a.settings.Outbox[name],
			Present:  a.outboxDSN(name),
			Send:     a.settings.Send,
			MaxBody:  int(a.settings.PolicyOf(a.settings.Outbox[name].Producer).MaxBody),
			Brokers:  a.destinations(opened),
			Forbidden: func(broker, exchange, key string) error {
				of := a.reloader.policies.Of(a.settings.Outbox[name].Producer)
				return of.CheckMessage(policy.Message{Broker: broker, Exchange: exchange, RoutingKey: key})
			},
			Open:      a.process.openDatabase,
			Handshake: a.doors.certificates.Servers("outbox."+name+".dsn", nil).Handshake,
			Instance:  a.process.instance,
			Language:  a.settings.Log.Language,
			Traffic:   a.metrics,
			Metrics:   a.metrics.Registerer(),
			Logger:    a.logger,
		})
		if err != nil {
			return SettingsError{err}
		}
		all = append(all, o)
		byName[name] = o
		a.checks.set(checkOfOutbox(name), func(context.Context) error { return o.Check() })
	}
	return a.watchUnrelayed(byName)
}

// checkOfOutbox names the check of the database of an outbox.
func checkOfOutbox(name string) string { return "outbox " + name }
