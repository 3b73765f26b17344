package redis

import (
	"context"
	"time"
)

const (
	// pageWork is how much due.lua does for pages at a time: so many ids to look at, or a tenth of that to index.
	pageWork = 1000
	// maxPageTime bounds the work for pages in one pass, which claims messages after that. The next pass goes on.
	maxPageTime = 250 * time.Millisecond
)

// These are the places in the arguments of due.lua: how much it lists, how much it does for pages, and behind which
// producer's pages it begins.
const (
	dueMost   = 1
	dueWork   = 2
	dueBehind = 3
)

// runDue asks shards for due messages. Shards that have more pages to index first do that, and are asked again.
func (s *Store) runDue(ctx context.Context, calls []*call) {
	begun := time.Now()
	run(ctx, s.loops, s.scripts.due, calls)
	behind := s.morePages(calls)
	for working := behind; len(working) > 0 && time.Since(begun) < s.pageTime; {
		for _, c := range working {
			c.args[dueMost] = 0 // nothing is listed meanwhile
		}
		s.pacer.backlog(slice, backlogRests)(ctx, s.loops, s.scripts.due, working)
		working = s.morePages(working)
	}
	if len(behind) == 0 {
		return
	}
	for _, c := range behind {
		c.args[dueMost], c.args[dueWork] = c.most, 0
	}
	run(ctx, s.loops, s.scripts.due, behind)
}

// morePages returns the calls for the shards that have more pages to index. The next call for such a shard, in this
// pass or in the next one, goes on where this call has ended.
func (s *Store) morePages(calls []*call) (more []*call) {
	for _, c := range calls {
		if last, _ := c.answer(0).(int64); c.err == nil && last > 0 {
			s.pageTurns[c.items[0]].Store(last)
			c.args[dueBehind] = last
			more = append(more, c)
		}
	}
	return more
}
