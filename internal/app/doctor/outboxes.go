package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/sqloutbox"
)

// examineOutboxes examines the databases of outboxes in plain SQL, one after the other.
func examineOutboxes(ctx context.Context, e Examination) (all []Finding) {
	for _, name := range e.Settings.OutboxNames() {
		r := report{area: "outbox " + name}
		all = append(all, r.outbox(ctx, e, name)...)
	}
	return all
}

func (r *report) outbox(ctx context.Context, e Examination, name string) []Finding {
	settings := e.Settings.Outbox[name]
	health, err := sqloutbox.Examine(ctx, name, settings, sqloutbox.Examination{
		Producers: relayedProducers(e.Settings), Brokers: slices.Collect(maps.Keys(e.Settings.Brokers)),
		Handshake: e.handshakes("outbox." + name + ".dsn"),
	})
	if err != nil {
		r.because(cause.Of(cause.Part{System: "sql", Name: name, Key: "outbox." + name + ".dsn"}, err), err.Error())
		return r.all
	}
	if n := health.Backlog.Failed; n > 0 && len(health.Failures) > 0 { // which were read later
		first := health.Failures[0]
		r.warn("outbox-failed", fmt.Sprintf("failed rows of producer %s in %s: %d, such as %q: %s",
			settings.Producer, settings.Table, n, first.ID, first.Error),
			"they are committed, and are not published any more",
			fmt.Sprintf("fix the cause, then: UPDATE %s SET state = 1, attempts = 0, due_at = 0 WHERE producer = '%s' "+
				"AND state = 4", settings.Table, settings.Producer))
	}
	if n := len(health.Refused); n > 0 {
		first := health.Refused[0]
		r.warn("outbox-refused", fmt.Sprintf("refused rows of producer %s in %s: %d, such as %q: %s",
			settings.Producer, settings.Table, n, first.ID, first.Error),
			"they wait, and are published again; after the last pause of send.backoff they fail",
			"fix the cause: a missing queue, exchange or right at the broker")
	}
	if health.Stranger != "" {
		r.warn("outbox-producer", fmt.Sprintf(
			"rows of producer %s wait in %s, and no outbox of the configuration relays them", health.Stranger, settings.Table),
			"they wait for ever, unless another coordinator relays them; an INSERT without a producer takes the default "+
				"with which the table was created",
			"name the producer in an outbox of its own with the same dsn, or: ALTER TABLE "+settings.Table+
				" ALTER COLUMN producer SET DEFAULT '"+settings.Producer+"'")
	}
	if health.Unknown != "" {
		r.warn("outbox-broker", fmt.Sprintf(
			"rows for broker %q wait in %s, and the configuration has no such broker", health.Unknown, settings.Table),
			"they wait, and use up no attempt, until a coordinator knows the broker",
			"set brokers.NAME.url for it, or: UPDATE "+settings.Table+" SET broker = '' WHERE state = 1 AND broker = NAME")
	}
	if health.Galera {
		r.warn("outbox-galera", "the database is a node of a Galera cluster",
			"such a cluster may lose committed transactions with its recommended settings, and a lost row is a lost message",
			"use one server with a standby; see docs/reference/tables.md#galera")
	}
	return r.orOK(fmt.Sprintf("%s answers; waiting rows: %d", health.Database, health.Backlog.Waiting))
}

// relayedProducers are the producers of all outboxes.
func relayedProducers(settings config.Config) (producers []string) {
	for _, o := range settings.Outbox {
		producers = append(producers, o.Producer)
	}
	return producers
}
