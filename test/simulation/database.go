package simulation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/test/faults"
)

var errRefused = errors.New("the business refuses")

// database is a producer's database in memory. It outlives the producer's process. Its markers stand in the
// transactions of the business, as those of marker/sql do, and the ledger gets each end of a transaction in the same
// moment.
type database struct {
	producer string
	ledger   *faults.Ledger

	mu sync.Mutex
	// released holds the ids whose markers were deleted: the row of the commit stays.
	released map[string]bool
	marked   map[string]marker.Verdict
	// refuses says that calls of the SDK fail. Transactions of the business go on.
	refuses atomic.Bool
}

// errAway is the error of a call that the database refuses.
var errAway = errors.New("the markers are away")

func (d *database) usable(ctx context.Context) error {
	if d.refuses.Load() {
		return errAway
	}
	return ctx.Err()
}

func newDatabase(producer string, ledger *faults.Ledger) *database {
	return &database{
		producer: producer, ledger: ledger, released: map[string]bool{}, marked: map[string]marker.Verdict{},
	}
}

// commit ends the transaction of a business, which fails where a tombstone stands.
func (d *database) commit(id string) error {
	if d.end(id, faults.Committed) != marker.Committed {
		return errRefused
	}
	return nil
}

// end ends a transaction, unless it has ended, and returns the verdict that counts.
func (d *database) end(id string, fate faults.Fate) marker.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.marked[id] == 0 {
		d.marked[id] = marker.RolledBack
		if d.ledger.Decide(d.producer+"/"+id, fate) == faults.Committed {
			d.marked[id] = marker.Committed
		}
	}
	return d.marked[id]
}

// Put implements marker.Store.
func (d *database) Put(ctx context.Context, ids []string, v marker.Verdict) (map[string]marker.Verdict, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	fate := faults.RolledBack
	if v == marker.Committed {
		fate = faults.Committed
	}
	standing := map[string]marker.Verdict{}
	for _, id := range ids {
		standing[id] = d.end(id, fate)
	}
	return standing, nil
}

// Lookup implements marker.Store. A final question makes a running transaction fail.
func (d *database) Lookup(ctx context.Context, ids []string, final bool) (map[string]marker.Verdict, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	found := map[string]marker.Verdict{}
	for _, id := range ids {
		if final {
			found[id] = d.end(id, faults.RolledBack)
			continue
		}
		if v := d.verdict(id); v != 0 {
			found[id] = v
		}
	}
	return found, nil
}

func (d *database) verdict(id string) marker.Verdict {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.marked[id]
}

// Delete implements marker.Store.
func (d *database) Delete(ctx context.Context, ids []string) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range ids {
		if d.marked[id] == marker.Committed {
			d.released[id] = true
		}
	}
	return nil
}

// Identity implements marker.Store.
func (d *database) Identity(context.Context) (string, error) { return "of-" + d.producer, nil }

// Capabilities implements marker.Store.
func (*database) Capabilities() marker.Capabilities {
	return marker.Capabilities{SurvivesRestart: true, Shared: true, DecidesFinal: true, InTransaction: true}
}

// markers lists the messages whose markers are still there.
func (d *database) markers() (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, v := range d.marked {
		if v == marker.Committed && !d.released[id] {
			keys = append(keys, d.producer+"/"+id)
		}
	}
	return keys
}

// way is how the business of a message goes.
type way struct {
	// percent is how many of a hundred go this way.
	percent int
	how     func(ctx context.Context, s *service, d *database, id string) error
}

// ways are the ways of a business whose half message was accepted.
var ways = []way{
	{55, func(_ context.Context, _ *service, d *database, id string) error { return d.commit(id) }},
	{15, func(_ context.Context, _ *service, d *database, id string) error { // commits, and dies before its Submit
		if err := d.commit(id); err != nil {
			return err
		}
		return producer.ErrOutcomeUnknown
	}},
	{10, func(context.Context, *service, *database, string) error { return errRefused }},
	{10, func(context.Context, *service, *database, string) error { return producer.ErrOutcomeUnknown }},
	{10, func(ctx context.Context, s *service, d *database, id string) error { // takes longer than the first question
		lingers := s.world.pace.long(s.world.Choices, s.called+" lingers", time.Second, 2*time.Minute)
		if err := sleep(ctx, lingers); err != nil {
			return producer.ErrOutcomeUnknown
		}
		return d.commit(id)
	}},
}

// open implements business.
func (d *database) open(*serviceRun) (marker.Store, error) { return d, nil }

// serve implements business.
func (*database) serve(*serviceRun) error { return nil }

// send implements business.
func (d *database) send(s *service, run *serviceRun, m producer.Message) error {
	key := s.called + "/" + m.ID
	return run.sdk.Send(run.life, m, func(context.Context) error {
		s.world.Ledger.Accepted(key)
		if run.life.Err() != nil {
			return producer.ErrOutcomeUnknown // the process is dead
		}
		drawn := s.world.Choices.Intn(s.place+"/"+m.ID+" way", 100)
		for _, way := range ways {
			if drawn -= way.percent; drawn < 0 {
				return way.how(run.life, s, d, m.ID)
			}
		}
		return nil
	})
}
