package redis

import (
	"context"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

var _ halfmsg.Historian = (*Store)(nil)

// Archive says which finished messages are kept with their content. Each shard has a stream of them. The script that
// ends a message adds the message to the stream.
type Archive struct {
	// Retention is how long an entry stays; 0 turns the archive off.
	Retention time.Duration
	// MaxMessages bounds the entries of all shards together.
	MaxMessages int
	// MaxBody is the longest body that is kept, as the record holds it; a longer one is left out.
	MaxBody int
	// mostOfShard is the part of MaxMessages of each shard.
	mostOfShard int64
}

func (a Archive) on() bool { return a.Retention > 0 }

// over divides the archive among shards.
func (a Archive) over(shards int) Archive {
	a.mostOfShard = int64(max(1, (a.MaxMessages+shards-1)/shards))
	return a
}

// discarded is the word of the archive for the end of a discarded message, which has no final state.
const discarded = string(halfmsg.EndedDiscarded)

// archiveOff is for how long a look at a nearly full Redis switches the archive off. The next look comes earlier.
const archiveOff = 30 * time.Second

// trimmed is how many entries one call of trim.lua removes.
const trimmed = 1000

// Archives implements halfmsg.Historian.
func (s *Store) Archives() bool { return s.config.Archive.on() }

// TrimArchive removes what is too old, or too much, from the archive: more is false at the end of this work.
func (s *Store) TrimArchive(ctx context.Context) (more bool, err error) {
	if !s.Archives() {
		return false, nil
	}
	_, more, err = s.trim(ctx)
	return more, err
}

// Archive implements halfmsg.Historian. What is too old is removed before.
func (s *Store) Archive(ctx context.Context) (halfmsg.ArchiveStat, error) {
	if !s.Archives() {
		return halfmsg.ArchiveStat{}, nil
	}
	stat, _, err := s.trim(ctx)
	return stat, err
}

func (s *Store) trim(ctx context.Context) (stat halfmsg.ArchiveStat, more bool, err error) {
	shards, err := s.reachableShards(ctx)
	if err != nil {
		return stat, true, err
	}
	calls := make([]*call, len(shards))
	for i, shard := range shards {
		calls[i] = newCall(shard, 4)
		calls[i].args = append(
			calls[i].args, s.config.Archive.Retention.Milliseconds(), s.config.Archive.mostOfShard, trimmed,
			archiveOff.Milliseconds())
	}
	run(ctx, s.loops, s.scripts.trim, calls)
	for _, c := range calls {
		if c.err != nil {
			return stat, true, c.err
		}
		more = more || counted(c, 0) > 0
		stat.Messages += counted(c, 1)
		stat.Dropped += counted(c, 3)
		first, _ := c.answer(2).(string)
		stat.OldestAt = earlier(stat.OldestAt, msOf(first))
	}
	return stat, more, nil
}

// counted is a number in a reply.
func counted(c *call, n int) int64 {
	count, _ := c.answer(n).(int64)
	return count
}

// msOf is the time in the id of an entry, in milliseconds: when the message ended. An empty id has 0.
func msOf(entry string) int64 {
	ms, _, _ := strings.Cut(entry, "-")
	return number(ms)
}
