package shards

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// Config says which shards there are. Tables must be given.
type Config struct {
	// Tables are the tables by shard.
	Tables []outbox.Table
	// Leases divides the shards among relays. Nil: this relay has all Tables.
	Leases *Leases
	// Logger gets warnings. Default: slog.Default().
	Logger *slog.Logger
}

// Of returns the tables of a store with Config.Shards: one for each shard.
func Of(store *sqlmarker.Store) []outbox.Table {
	tables := make([]outbox.Table, store.Shards())
	for shard := range tables {
		tables[shard] = store.Shard(shard)
	}
	return tables
}

// Table is an outbox.Table of the shards that its relay has at the time. A Table belongs to one relay.
type Table struct {
	config Config
	queued chan struct{}

	mu sync.Mutex
	// held are the shards of this relay until a time of this process's clock.
	held  []int
	until time.Time
	// paused are shards whose table failed at its last claim.
	paused map[int]pause
	turn   int
	last   claimed
}

// pause is how often a table has failed, and until when a claim leaves the shard out.
type pause struct {
	failures int
	until    time.Time
}

// longestPause is the longest pause of a shard, in locks. A shard waits for one lock after its first failure, and twice
// as long after each further one.
const longestPause = 8

// claimed is the last claim of the relay.
type claimed struct {
	token string
	// from says for each message which table has it, under which token.
	from map[place]origin
}

// place is a message in the outcomes of a relay.
type place struct {
	shard int
	id    string
}

type origin struct {
	table int
	token string
	// recorded: the table has the outcome. held: the claim still held messages of the table then.
	recorded, held bool
}

// New returns a table, or an error for a configuration that cannot work.
func New(config Config) (*Table, error) {
	if len(config.Tables) == 0 || slices.Contains(config.Tables, nil) {
		return nil, errors.New("shards.Config: Tables is empty, or has a nil; give a table for each shard")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	t := &Table{config: config, queued: make(chan struct{}, 1), paused: map[int]pause{}}
	if config.Leases == nil {
		for shard := range config.Tables {
			t.held = append(t.held, shard)
		}
	}
	return t, nil
}

// Run renews the leases and passes the signals of the tables on, until its context ends; then it gives the shards
// back. The relay calls Run.
func (t *Table) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	var heard []<-chan struct{}
	for _, table := range t.config.Tables {
		if queued := table.Queued(); queued != nil && !slices.Contains(heard, queued) {
			heard = append(heard, queued)
			running.Go(func() { t.forward(ctx, queued) })
		}
	}
	if t.config.Leases != nil {
		running.Go(func() { t.lease(ctx) })
	}
}

func (t *Table) forward(ctx context.Context, queued <-chan struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-queued:
			t.wake()
		}
	}
}

func (t *Table) wake() {
	select {
	case t.queued <- struct{}{}:
	default: // the channel holds a signal already
	}
}

// leaveTimeout bounds how long a stopping relay gives its shards back.
const leaveTimeout = 5 * time.Second

// lease renews the leases three times per lease.
func (t *Table) lease(ctx context.Context) {
	l := t.config.Leases
	for {
		begun := time.Now() // the database's lease begins later
		held, relays, err := l.round(ctx, len(t.config.Tables), t.keep)
		switch {
		case err == nil:
			if t.hold(held, begun.Add(l.config.Lease)) {
				l.config.Logger.InfoContext(ctx, "this relay has other shards now", "shards", held, "relays", relays,
					"owner", l.config.Owner)
				t.wake()
			}
		case ctx.Err() == nil:
			l.config.Logger.WarnContext(ctx, "shard leases not renewed; other relays take the shards when the leases end; "+
				"the relay retries", "cause", err)
		}
		if backoff.Sleep(ctx, l.config.Lease/3) != nil {
			break
		}
	}
	t.hold(nil, time.Time{})
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if err := l.leave(leaving); err != nil {
		l.config.Logger.WarnContext(leaving, "shards not given back; other relays take them when the leases end",
			"cause", err)
	}
}

// hold records the shards of this relay, and reports whether they have changed.
func (t *Table) hold(shards []int, until time.Time) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = !slices.Equal(t.held, shards)
	t.held, t.until = slices.Clone(shards), until
	return changed
}

// keep drops all shards but these, before another relay may have the others.
func (t *Table) keep(shards []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = slices.Clone(shards)
}

// Held returns the shards that the relay has now.
func (t *Table) Held() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config.Leases != nil && time.Now().After(t.until) {
		return nil
	}
	return slices.Clone(t.held)
}

// Queued implements outbox.Table.
func (t *Table) Queued() <-chan struct{} { return t.queued }

// nextShards are the shards of a claim. Each claim begins with another shard. Shards whose table failed come last, and
// are left out for a while: a database that hangs must not use up the time of the others.
func (t *Table) nextShards() []int {
	held := t.Held()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(held) == 0 {
		return nil
	}
	t.turn++
	first := t.turn % len(held)
	held = append(held[first:], held[:first]...)
	held = slices.DeleteFunc(held, func(shard int) bool { return time.Now().Before(t.paused[shard].until) })
	slices.SortStableFunc(held, func(a, b int) int { return cmp.Compare(t.paused[a].failures, t.paused[b].failures) })
	return held
}

// Claim implements outbox.Table: a batch of the shards that the relay has, for a third of the lock at most, because the
// sender needs the rest. A table that fails is left out for a while, and keeps nothing back that others have.
func (t *Table) Claim(ctx context.Context, request sqlmarker.ClaimRequest) (sqlmarker.Claim, error) {
	claim := sqlmarker.Claim{Token: request.Owner + "/" + rand.Text()[:10]}
	from := map[place]origin{}
	var failures []error
	bounded, cancel := context.WithTimeout(ctx, request.Lock/3)
	defer cancel()
	request.Bytes = cmp.Or(request.Bytes, math.MaxInt64)
	for _, shard := range t.nextShards() {
		if request.Limit <= 0 || request.Bytes <= 0 || bounded.Err() != nil {
			break
		}
		part, err := t.claimOf(bounded, shard, request)
		if err != nil {
			failures = append(failures, fmt.Errorf("shard %d: %w", shard, err))
			continue
		}
		if len(part.Messages) > 0 && (claim.Lock == 0 || part.Lock < claim.Lock) {
			claim.Lock = part.Lock
		}
		for _, c := range part.Messages {
			at := place{c.Shard, c.ID}
			if _, twice := from[at]; !twice { // a copy in another table waits for its lock to end
				from[at] = origin{table: shard, token: part.Token}
				claim.Messages = append(claim.Messages, c)
			}
			request.Limit--
			request.Bytes -= c.Bytes
		}
	}
	claim.More = request.Limit <= 0 || request.Bytes <= 0
	t.mu.Lock()
	t.last = claimed{claim.Token, from}
	t.mu.Unlock()
	err := errors.Join(failures...)
	if err != nil && len(claim.Messages) > 0 {
		t.config.Logger.WarnContext(ctx, "shards not claimed; their messages wait; the relay retries", "cause", err)
		err = nil
	}
	return claim, err
}

// claimOf claims messages of one shard, and notes whether its table fails.
func (t *Table) claimOf(
	ctx context.Context, shard int, request sqlmarker.ClaimRequest,
) (sqlmarker.Claim, error) {
	claim, err := t.config.Tables[shard].Claim(ctx, request)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		delete(t.paused, shard)
	case !errors.Is(ctx.Err(), context.Canceled): // otherwise the relay is stopping
		p := t.paused[shard]
		p.until = time.Now().Add(request.Lock * time.Duration(min(1<<min(p.failures, 10), longestPause)))
		p.failures++
		t.paused[shard] = p
	}
	return claim, err
}

// Load implements outbox.Table. The tables load at once: a table that hangs uses up the time of no other.
func (t *Table) Load(ctx context.Context, token string, all []sqlmarker.Claimed) ([]sqlmarker.Queued, error) {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	if last.token != token {
		return nil, nil
	}
	parts := map[origin][]sqlmarker.Claimed{}
	for _, c := range all {
		from := last.from[place{c.Shard, c.ID}]
		parts[from] = append(parts[from], c)
	}
	var mu sync.Mutex
	var messages []sqlmarker.Queued
	var failures []error
	var loading sync.WaitGroup
	for from, part := range parts {
		loading.Go(func() {
			loaded, err := t.config.Tables[from.table].Load(ctx, from.token, part)
			mu.Lock()
			defer mu.Unlock()
			messages = append(messages, loaded...)
			if err != nil {
				failures = append(failures, fmt.Errorf("shard %d: %w", from.table, err))
			}
		})
	}
	loading.Wait()
	return messages, errors.Join(failures...)
}

// Release implements outbox.Table. Each table records its own outcomes. When one table fails, the relay calls again
// with fewer outcomes; what the others have recorded then counts as it did at first.
func (t *Table) Release(ctx context.Context, token string, outcomes []sqlmarker.Outcome) (held int64, err error) {
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	if last.token != token {
		return 0, nil
	}
	parts := map[origin][]sqlmarker.Outcome{}
	for _, o := range outcomes {
		from, known := last.from[place{o.Shard, o.ID}]
		switch {
		case known && !from.recorded:
			parts[from] = append(parts[from], o)
		case from.held:
			held++
		}
	}
	return t.release(ctx, last, parts, held)
}

// release has each table record its outcomes, all at once: a table that hangs uses up the time of no other. held counts
// what was held before.
func (t *Table) release(
	ctx context.Context, last claimed, parts map[origin][]sqlmarker.Outcome, held int64,
) (int64, error) {
	var mu sync.Mutex
	var failures []error
	var releasing sync.WaitGroup
	for from, part := range parts {
		releasing.Go(func() {
			n, err := t.config.Tables[from.table].Release(ctx, from.token, part)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures = append(failures, fmt.Errorf("shard %d: %w", from.table, err))
				return
			}
			held += n
			for _, o := range part {
				last.from[place{o.Shard, o.ID}] = origin{from.table, from.token, true, n > 0}
			}
		})
	}
	releasing.Wait()
	return held, errors.Join(failures...)
}

// Purge implements outbox.Table, for the shards that the relay has.
func (t *Table) Purge(ctx context.Context) (removed int64, err error) {
	var failures []error
	for _, shard := range t.Held() {
		n, err := t.config.Tables[shard].Purge(ctx)
		removed += n
		if err != nil {
			failures = append(failures, fmt.Errorf("shard %d: %w", shard, err))
		}
	}
	return removed, errors.Join(failures...)
}

// Backlog implements outbox.Table, for the shards that the relay has: the numbers of all relays add up.
func (t *Table) Backlog(ctx context.Context) (all sqlmarker.Backlog, err error) {
	for _, shard := range t.Held() {
		b, err := t.config.Tables[shard].Backlog(ctx)
		if err != nil {
			return sqlmarker.Backlog{}, fmt.Errorf("shard %d: %w", shard, err)
		}
		all.Waiting += b.Waiting
		all.Handed += b.Handed
		all.Failed += b.Failed
		all.Oldest = max(all.Oldest, b.Oldest)
	}
	return all, nil
}
