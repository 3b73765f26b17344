package redis

import (
	"context"
	"sync/atomic"
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

// pageWorker has what passes need to work on pages that are due.
type pageWorker struct {
	// atMost is maxPageTime; tests choose a shorter time.
	atMost time.Duration
	// turns holds for each shard behind which producer's pages the next call begins. So all producers get their turn,
	// however few of them a pass reaches.
	turns []atomic.Int64
}

func newPageWorker(shards int) pageWorker {
	return pageWorker{atMost: maxPageTime, turns: make([]atomic.Int64, shards)}
}

// runDue asks shards for due messages. Shards that have more pages to index first do that, and are asked again.
func (s *Store) runDue(ctx context.Context, calls []*call) {
	begun := time.Now()
	s.pageWorker.begin(calls)
	run(ctx, s.loops, s.scripts.due, calls)
	behind := s.pageWorker.goOn(calls)
	for working := behind; len(working) > 0 && time.Since(begun) < s.pageWorker.atMost; {
		for _, c := range working {
			c.args[dueMost] = 0 // nothing is listed meanwhile
		}
		s.pageWorker.begin(working)
		s.pacer.backlog(slice, backlogRests)(ctx, s.loops, s.scripts.due, working)
		working = s.pageWorker.goOn(working)
	}
	if len(behind) == 0 {
		return
	}
	for _, c := range behind {
		c.args[dueMost], c.args[dueWork] = c.most, 0
	}
	run(ctx, s.loops, s.scripts.due, behind)
}

// begin tells each shard behind which producer's pages to begin.
func (w *pageWorker) begin(calls []*call) {
	for _, c := range calls {
		c.args[dueBehind] = w.turns[c.items[0]].Load()
	}
}

// goOn notes the turns, and returns the calls for the shards that have more pages to index.
func (w *pageWorker) goOn(calls []*call) (more []*call) {
	for _, c := range calls {
		if number, _ := c.answer(0).(int64); c.err == nil && number > 0 {
			w.turns[c.items[0]].Store(number)
			more = append(more, c)
		}
	}
	return more
}
