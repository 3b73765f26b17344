package redis

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A layout is a promise of all coordinators. Messages that name a broker follow the same rules as pages: layout
// namedBrokers comes only when no older version runs, some time before the first such message, and leaves when none is
// kept any more. An older version would publish such a message to the default broker; that it refuses to read the
// record protects against one that hung meanwhile.
//
// New messages are paged when the data have layout pagedMessages. Older versions do not find such messages, so data of
// layout packedBodies get the newer layout only when no older version runs. Messages are paged only some time after
// that: an older version that has read the layout just before has noted by then that it runs.
//
// The way back is as careful: a coordinator that is to use an older layout notes that the data go back. No coordinator
// pages messages from then on, and the data get the older layout when none is paged any more.

const (
	// layoutRest is how long after a change messages are not paged yet, and may still be.
	layoutRest = 30 * time.Second
	// pagingLease is for how long a look at the layout holds. A coordinator that hung does not page messages before its
	// next look.
	pagingLease = layoutRest / 2
)

// newestLayout is the newest layout that this coordinator uses.
func (c Config) newestLayout() int {
	if c.Layout != 0 {
		return c.Layout
	}
	return newestLayout
}

// firstLayout is the layout of new data. Without named brokers an older version can follow on them.
func (c Config) firstLayout() int {
	if c.Layout == 0 && len(c.Brokers) == 0 {
		return pagedMessages
	}
	return c.newestLayout()
}

// switchedByLayout is something that new messages have only while the layout of the data allows.
type switchedByLayout struct {
	// begun is when the store was opened, by a clock that does not jump; until is the time from then until which new
	// messages have it.
	begun time.Time
	until atomic.Int64
}

func (p *switchedByLayout) on() bool { return int64(time.Since(p.begun)) < p.until.Load() }

// set lets new messages have it for so long, and says whether that is a change.
func (p *switchedByLayout) set(on bool, lease time.Duration) (changed bool) {
	changed = p.on() != on
	switch {
	case !on:
		p.until.Store(0)
	case lease == math.MaxInt64:
		p.until.Store(math.MaxInt64)
	default:
		p.until.Store(int64(time.Since(p.begun) + lease))
	}
	return changed
}

// names says whether messages may name a broker in the layout of the data.
func (s *Store) names() bool { return s.written.Load() >= namedBrokers }

// startPaging decides whether messages are paged, and whether they may name a broker, until NoteRun looks at the other
// coordinators for the first time.
func (s *Store) startPaging(ctx context.Context) error {
	at, err := s.readLayout(ctx)
	if err != nil {
		return err
	}
	s.paging.begun, s.naming.begun = time.Now(), time.Now()
	s.naming.set(at.allowsNames(s.config.newestLayout()), math.MaxInt64)
	s.paging.set(at.pages(s.config.newestLayout()), math.MaxInt64)
	if err := s.goBack(ctx, at); err != nil && !errors.Is(err, halfmsg.ErrFull) { // NoteRun does that later
		return err
	}
	return nil
}

// followLayout decides whether messages are paged. lowest is the lowest of the newest layouts that the coordinators
// use. Where all of them use a newer layout, the data get that layout.
func (s *Store) followLayout(ctx context.Context, lowest int) error {
	at, err := s.readLayout(ctx)
	if err != nil {
		return err
	}
	paged := at.pages(min(lowest, s.config.newestLayout()))
	if s.paging.set(paged, pagingLease) {
		s.logger.Info("whether new messages are paged has changed; docs/reference/redis.md, Layouts, says why",
			"paged", paged,
			"layout", at.version, "lowest_known_to_all", lowest)
	}
	if named := at.allowsNames(min(lowest, s.config.newestLayout())); s.naming.set(named, pagingLease) {
		s.logger.Info("whether messages may name a broker has changed; docs/reference/redis.md, Layouts, says why",
			"allowed", named,
			"layout", at.version, "lowest_known_to_all", lowest)
	}
	switch {
	case at.version == packedBodies && lowest >= pagedMessages:
		return s.writeLayout(ctx, pagedMessages)
	case at.version == pagedMessages && !at.goesBack && at.age >= layoutRest &&
		lowest >= namedBrokers && len(s.config.Brokers) > 0:
		return s.writeLayout(ctx, namedBrokers)
	case at.version >= pagedMessages && at.goesBack && lowest >= at.version:
		return translate(s.loops.HDel(ctx, metaOf(s.config.Prefix), backField).Err())
	}
	return s.goBack(ctx, at)
}

// goBack brings data of layout pagedMessages or later back to an older layout, if this coordinator is to use an older
// one.
func (s *Store) goBack(ctx context.Context, at writtenAt) error {
	older := s.config.newestLayout()
	if at.version < pagedMessages || older >= at.version {
		return nil
	}
	if !at.goesBack {
		now, err := s.loops.Time(ctx).Result()
		if err == nil {
			err = s.loops.HSet(ctx, metaOf(s.config.Prefix), backField, now.UnixMilli()).Err()
		}
		return translate(err)
	}
	if at.age < layoutRest {
		return nil
	}
	if paged, err := s.hasPaged(ctx); err != nil || paged {
		return err
	}
	if at.version >= namedBrokers {
		if named, err := s.hasNamed(ctx); err != nil || named {
			return err
		}
	}
	return s.writeLayout(ctx, older)
}

// hasPaged says whether a message is paged in any shard.
func (s *Store) hasPaged(ctx context.Context) (bool, error) {
	for _, shard := range s.keys.shards {
		producers, err := s.loops.SMembers(ctx, shard+producersKey).Result()
		if err != nil {
			return false, translate(err)
		}
		pipe := s.loops.Pipeline()
		found := make([]*redis.IntCmd, len(producers))
		for i, producer := range producers {
			base := shard + producer + ":"
			found[i] = pipe.Exists(ctx, base+halfmsg.Pending.String()+cellsSuffix, base+halfmsg.Sendable.String()+cellsSuffix)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return false, translate(err)
		}
		for _, keys := range found {
			if keys.Val() > 0 {
				return true, nil
			}
		}
	}
	return false, nil
}

// hasNamed says whether a kept message names a broker.
func (s *Store) hasNamed(ctx context.Context) (bool, error) {
	for _, state := range halfmsg.Kept() {
		query := halfmsg.Query{State: state, Limit: 1000}
		for {
			page, err := s.List(ctx, query)
			if err != nil {
				return false, err
			}
			if slices.ContainsFunc(page.Records, func(r halfmsg.Record) bool { return r.Broker != "" }) {
				return true, nil
			}
			if query.Cursor = page.Next; query.Cursor == "" {
				break
			}
		}
	}
	return false, nil
}

// writtenAt is the layout of the data, whether the data go back to an older one, and how long ago that began, or how
// long the data have this layout.
type writtenAt struct {
	version  int
	goesBack bool
	age      time.Duration
}

// pages says whether messages are paged where all coordinators use layout lowest.
func (w writtenAt) pages(lowest int) bool {
	// Data get a later layout only when messages are paged already.
	return w.version >= pagedMessages && !w.goesBack && lowest >= pagedMessages &&
		(w.version > pagedMessages || w.age >= layoutRest)
}

// allowsNames says whether messages may name a broker where all coordinators use layout lowest.
func (w writtenAt) allowsNames(lowest int) bool {
	return w.version >= namedBrokers && !w.goesBack && lowest >= namedBrokers && w.age >= layoutRest
}

// readLayout reads the layout of the data. New data have their first layout for ever.
func (s *Store) readLayout(ctx context.Context) (writtenAt, error) {
	key := metaOf(s.config.Prefix)
	meta, err := s.loops.HGetAll(ctx, key).Result()
	if err != nil {
		return writtenAt{}, fmt.Errorf("reading %s: %w", key, translate(err))
	}
	since, back := number(meta[sinceField]), number(meta[backField])
	at := writtenAt{version: versionOf(meta[layoutField]), goesBack: back > 0, age: layoutRest}
	s.written.Store(int64(at.version))
	if since = max(since, back); since > 0 {
		now, err := s.loops.Time(ctx).Result()
		if err != nil {
			return writtenAt{}, translate(err)
		}
		at.age = now.Sub(time.UnixMilli(since))
	}
	return at, nil
}

// writeLayout gives data another layout with the same keys.
func (s *Store) writeLayout(ctx context.Context, version int) error {
	now, err := s.loops.Time(ctx).Result()
	if err != nil {
		return translate(err)
	}
	key := metaOf(s.config.Prefix)
	pipe := s.loops.TxPipeline()
	pipe.HSet(ctx, key, layoutField, version, sinceField, now.UnixMilli())
	pipe.HDel(ctx, key, backField)
	if _, err := pipe.Exec(ctx); err != nil {
		return translate(err)
	}
	s.logger.Info("the data have another layout from now on", "layout", version,
		"remedy", "none needed; docs/reference/redis.md says which versions know it, and how to go back")
	return nil
}
