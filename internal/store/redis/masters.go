package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// watchInterval is how often the masters of a Cluster are asked whether they answer.
	watchInterval = 500 * time.Millisecond
	// maxSilence is for how long a master may answer nothing before its circuit opens.
	maxSilence = 2 * time.Second
)

// SilentMaster is a master of a Cluster that does not answer.
type SilentMaster struct {
	// Addr is its address; empty where the Cluster names no master for the shards.
	Addr   string
	Since  time.Time
	Shards int
	Cause  error
}

// cluster is a client of a Cluster with a circuit breaker for each master. Calls for a master that does not answer fail
// at once: otherwise each batch that holds one of them would wait for its time-out, and so would all other masters.
type cluster struct {
	*redis.ClusterClient
	breakers *breakers
}

// breakers are the circuits of the masters. They are open for masters that do not answer a PING. On a single server
// there are none.
type breakers struct {
	logger *slog.Logger
	shards []string
	// probe is the store's, and sends the PINGs.
	probe *cluster
	// open says that a circuit is open: otherwise no call is looked at.
	open   atomic.Bool
	mu     sync.Mutex
	silent map[string]SilentMaster
	// away is why no master works; nil while one does.
	away    error
	stop    context.CancelFunc
	watched lifecycle.Group
}

// watch asks all masters until stop. Only then the circuits open and close.
func (b *breakers) watch() {
	ctx, stop := context.WithCancel(context.Background())
	b.stop = stop
	b.watched.Go(func() {
		for backoff.Sleep(ctx, watchInterval) == nil {
			b.look(ctx)
		}
	})
}

// close ends watch.
func (b *breakers) close() {
	if b != nil && b.stop != nil {
		b.stop()
		_ = b.watched.Wait(context.Background()) // a PING ends with the context
	}
}

// look asks all masters once.
func (b *breakers) look(ctx context.Context) {
	masters := map[string]*SilentMaster{}
	answers := make(chan error, len(b.shards))
	var asked lifecycle.Group
	for _, shard := range b.shards {
		master, err := b.probe.MasterForKey(ctx, shard)
		addr := ""
		if err == nil {
			addr = master.Options().Addr
		}
		if m := masters[addr]; m != nil {
			m.Shards++
			continue
		}
		m := &SilentMaster{Addr: addr, Shards: 1, Cause: err}
		masters[addr] = m
		if err != nil {
			answers <- err
			continue
		}
		asked.Go(func() {
			err := ping(ctx, master)
			if _, answered := errors.AsType[redis.Error](err); !answered { // after LOADING its calls fail at once, too
				m.Cause = err
			}
			answers <- err
		})
	}
	_ = asked.Wait(context.Background()) // each PING has its own time-out
	close(answers)
	if ctx.Err() == nil {
		b.set(masters, answers)
	}
}

func ping(ctx context.Context, master *redis.Client) error {
	ctx, cancel := context.WithTimeout(ctx, maxSilence)
	defer cancel()
	return master.Ping(ctx).Err()
}

// set opens and closes the circuits. The answers to the PINGs say whether a master works.
func (b *breakers) set(masters map[string]*SilentMaster, answers <-chan error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = nil
	for err := range answers {
		if b.away = translate(err); err == nil {
			break
		}
	}
	now := map[string]SilentMaster{}
	for addr, m := range masters {
		if m.Cause == nil {
			continue
		}
		before, was := b.silent[addr]
		if m.Since = before.Since; !was {
			m.Since = time.Now()
			b.logger.Error("Redis master does not answer: calls for its shards fail at once, and their messages wait; "+
				"look at the server, or promote a replica", "master", addr, "shard_count", m.Shards, "cause", m.Cause)
		}
		now[addr] = *m
	}
	for addr, m := range b.silent {
		if _, is := now[addr]; !is {
			b.logger.Info("Redis master answers again, or another has taken its shards", "master", addr,
				"silent_ms", time.Since(m.Since).Milliseconds())
		}
	}
	b.silent = now
	b.open.Store(len(now) > 0)
}

// errorOf is the error for calls to a master whose circuit is open.
func (b *breakers) errorOf(addr string) error {
	if b == nil || !b.open.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	m, is := b.silent[addr]
	if !is {
		return nil
	}
	return silentMasterError{fmt.Errorf("%w: Redis master %s does not answer since %s: %w", halfmsg.ErrUnavailable, addr,
		m.Since.UTC().Format(time.TimeOnly), m.Cause)}
}

// silentMasterError knows its cause: its text and type are those of a Redis that is away, and the other masters work.
type silentMasterError struct{ error }

func (e silentMasterError) Unwrap() error { return e.error }

// Cause implements cause.Explained.
func (silentMasterError) Cause() cause.Cause { return cause.RedisMasterAway }

// errorOf is the error for calls for a shard, or any other key, whose master's circuit is open.
func (c *cluster) errorOf(ctx context.Context, key string) error {
	if c.breakers == nil || !c.breakers.open.Load() {
		return nil
	}
	master, err := c.MasterForKey(ctx, key)
	if err != nil {
		return fmt.Errorf("%w: %w", halfmsg.ErrUnavailable, err)
	}
	return c.breakers.errorOf(master.Options().Addr)
}

// answerable fails the calls for masters that do not answer, and returns the others.
func answerable(ctx context.Context, client redis.UniversalClient, calls []*call) []*call {
	c, is := client.(*cluster)
	if !is || c.breakers == nil || !c.breakers.open.Load() {
		return calls
	}
	left := make([]*call, 0, len(calls))
	for _, one := range calls {
		if err := c.errorOf(ctx, one.shard); err != nil {
			one.reply, one.err = nil, err
			continue
		}
		left = append(left, one)
	}
	return left
}

// laneOf is the address of the master of a shard on a Cluster: calls for different masters share no batch, because a
// master that falls silent would hold up the others' calls until its circuit opens. "" where there is a single server.
func laneOf(client redis.UniversalClient, shard string) string {
	c, is := client.(*cluster)
	if !is {
		return ""
	}
	master, err := c.MasterForKey(context.Background(), shard) // asks the Cluster only before the first call
	if err != nil {
		return ""
	}
	return master.Options().Addr
}

// Lane implements halfmsg.Intake.
func (s *Store) Lane(name halfmsg.Name) string {
	if _, is := s.intake.(*cluster); !is {
		return ""
	}
	return laneOf(s.intake, s.keys.shards[s.keys.shardOf(name)])
}

// eachReachable is eachMaster without the masters of a Cluster that cannot be reached, unless none can.
func eachReachable(
	ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error,
) error {
	c, is := client.(*cluster)
	if !is {
		return eachMaster(ctx, client, f)
	}
	var mu sync.Mutex
	var away error
	reached := false
	err := c.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		err := c.breakers.errorOf(master.Options().Addr)
		if err == nil {
			err = f(ctx, master)
		}
		mu.Lock()
		defer mu.Unlock()
		if _, answered := errors.AsType[redis.Error](err); err != nil && !answered {
			away = err
			return nil
		}
		reached = true
		return err
	})
	if err == nil && !reached {
		return away
	}
	return err
}

// reachable are the shards whose masters answer, by number; all of them on a single server. The error says why there is
// none.
func (s *Store) reachable(ctx context.Context) (shards []int, err error) {
	c, is := s.loops.(*cluster)
	for i, shard := range s.keys.shards {
		if is {
			if away := c.errorOf(ctx, shard); away != nil {
				err = away
				continue
			}
		}
		shards = append(shards, i)
	}
	if len(shards) > 0 {
		return shards, nil
	}
	return nil, err
}

// reachableShards are the prefixes of the shards whose masters answer.
func (s *Store) reachableShards(ctx context.Context) (shards []string, err error) {
	numbers, err := s.reachable(ctx)
	for _, i := range numbers {
		shards = append(shards, s.keys.shards[i])
	}
	return shards, err
}

// watchMasters opens and closes the circuits of a Cluster's masters until Close.
func (s *Store) watchMasters() {
	intake, is := s.intake.(*cluster)
	loops, _ := s.loops.(*cluster)
	if !is {
		return
	}
	probe, _ := s.probe.(*cluster)
	s.breakers = &breakers{logger: s.logger, shards: s.keys.shards, probe: probe}
	intake.breakers, loops.breakers = s.breakers, s.breakers
	s.breakers.watch()
}

// SilentMasters are the masters of a Cluster that do not answer. Calls for their shards fail at once.
func (s *Store) SilentMasters() (silent []SilentMaster) {
	if s.breakers == nil {
		return nil
	}
	s.breakers.mu.Lock()
	defer s.breakers.mu.Unlock()
	for _, m := range s.breakers.silent {
		silent = append(silent, m)
	}
	return silent
}

// Ping is nil when a master answers: the shards of the others are away, and the coordinator works for the rest. On a
// Cluster Ping says what the last PINGs of the breakers found.
func (s *Store) Ping(ctx context.Context) error {
	if s.breakers == nil {
		return translate(s.probe.Ping(ctx).Err())
	}
	s.breakers.mu.Lock()
	defer s.breakers.mu.Unlock()
	return s.breakers.away
}

// Shards is in how many parts the data are.
func (s *Store) Shards() int { return len(s.keys.shards) }
