package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const (
	// parkedSchedule is how often messages that wait for their brokers are counted.
	parkedSchedule = "@every 15s"
	// unrelayedSchedule is how often rows of producers without a relay are counted, and unrelayedTime bounds a count.
	unrelayedSchedule = "@every 30s"
	unrelayedTime     = 10 * time.Second
)

// unworked is what no part of this coordinator works on, counted by what is there and not by the configuration. A part
// that is configured has checks and metrics of its own.
type unworked struct {
	// parked are the numbers of messages by brokers that the configuration does not name, and rows those of rows in
	// outboxes of plain SQL.
	parked heldCounts[int64]
	rows   atomic.Pointer[[]console.UnrelayedRows]
}

// unrelayed counts the rows that no relay of this coordinator reads, as far as the databases have said.
func (u *unworked) unrelayed() []console.UnrelayedRows {
	if rows := u.rows.Load(); rows != nil {
		return *rows
	}
	return nil
}

// watchParked starts the loop that counts messages for unknown brokers.
func (a *App) watchParked(store *redisstore.Store) error {
	a.metrics.Unworked(a.backlog.unworked.parked.all, a.backlog.unworked.unrelayed)
	return a.repeat("parked", parkedSchedule, func(ctx context.Context) error {
		counts, err := store.Parked(ctx)
		a.backlog.unworked.noteParked(counts, err, a.settings.BrokerNames(), a.inPart())
		return err
	})
}

// noteParked notes the counts of brokers that are not known. Without an answer of the store the earlier counts stand.
func (u *unworked) noteParked(counts map[string]int64, err error, known []string, inPart bool) {
	if err != nil {
		return
	}
	maps.DeleteFunc(counts, func(broker string, _ int64) bool { return broker == "" || slices.Contains(known, broker) })
	u.parked.note(counts, inPart)
}

// watchUnrelayed starts the loop that counts rows without a relay. A database that does not answer has a check.
func (a *App) watchUnrelayed(outboxes map[string]*sqloutbox.Outbox) error {
	if len(outboxes) == 0 {
		return nil
	}
	var producers []string
	for _, o := range a.settings.Outbox {
		producers = append(producers, o.Producer)
	}
	count, err := a.newLoop("unrelayed", unrelayedSchedule, func(ctx context.Context) (bool, error) {
		var all []console.UnrelayedRows
		for _, database := range slices.Sorted(maps.Keys(outboxes)) {
			ctx, cancel := context.WithTimeout(ctx, unrelayedTime)
			counts, _ := outboxes[database].Unrelayed(ctx, producers)
			cancel()
			for _, producer := range slices.Sorted(maps.Keys(counts)) {
				all = append(all, console.UnrelayedRows{Database: database, Producer: producer, Rows: counts[producer]})
			}
		}
		a.backlog.unworked.rows.Store(&all)
		return false, nil
	})
	if err != nil {
		return err
	}
	count.Start()
	count.Wake()
	return nil
}

// unworked reports what no part of this coordinator works on.
func (f *findings) unworked(u *unworked) {
	counts := u.parked.all()
	for _, broker := range slices.Sorted(maps.Keys(counts)) {
		f.add(trouble, "broker-unknown", fmt.Sprintf("committed messages for broker %.100q: %d, "+
			"and the configuration of this coordinator names no such broker", broker, counts[broker]),
			"they stay "+halfmsg.Sendable.String()+" in Redis, and no coordinator with this configuration publishes them",
			"set brokers."+broker+".url again until they are published: msghandler list --state sendable --broker "+broker).
			Count = counts[broker]
	}
	for _, r := range u.unrelayed() {
		p := f.add(trouble, "outbox-unrelayed", fmt.Sprintf("waiting rows of producer %.100q in the table of outbox.%s: "+
			"%d, and no outbox of the configuration relays them", r.Producer, r.Database, r.Rows),
			"they are committed, and wait until a relay has their producer",
			"name the producer in an outbox of its own with the same dsn; see outbox-producer of the doctor")
		p.Subject, p.Count = r.Database+" "+r.Producer, r.Rows
	}
}
