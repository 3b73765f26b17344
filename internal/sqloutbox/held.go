package sqloutbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// newHeld is the metric that lets an alert about waiting rows leave out what an alert about a broker tells.
func newHeld(producer string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "msghandler_outbox_held_messages", ConstLabels: prometheus.Labels{"producer": producer},
		Help: "Only in a coordinator: messages in the state waiting whose broker is away.",
	})
}

// Backlog implements outbox.Table, and counts the rows of absent brokers beside it.
func (t *watchedTable) Backlog(ctx context.Context) (sqlmarker.Backlog, error) {
	held, err := t.of.countHeld(ctx)
	if err != nil {
		return sqlmarker.Backlog{}, err
	}
	t.of.held.Set(held)
	return t.Outbox.Backlog(ctx)
}

func (o *Outbox) countHeld(ctx context.Context) (held float64, err error) {
	var away []string
	for name, broker := range o.config.Brokers {
		if broker.Publisher.Ready() != nil {
			away = append(away, "'"+name+"'") // names are plain
		}
	}
	if len(away) == 0 {
		return 0, nil
	}
	err = o.database.QueryRowContext(ctx, fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE state = 1 AND producer = '%s' "+
		"AND broker IN (%s)", o.config.Settings.Table, o.config.Settings.Producer, strings.Join(away, ", "))).Scan(&held)
	if err != nil {
		err = fmt.Errorf("count rows of brokers that are away: %w", err)
	}
	return held, err
}
