package redis

import (
	"context"
	"time"
)

const (
	// RunSilence is how long a coordinator that has not stopped cleanly must not have counted in the pulse before it
	// counts as ended. A coordinator counts four times a second, and after an outage of Redis again within ten seconds.
	RunSilence = 20 * time.Second
	// RunMemory is for how long an end is told.
	RunMemory = time.Hour
	// maxEnds bounds how many ends are kept: a crash loop must not fill Redis.
	maxEnds = 100
)

// UncleanEnd is the end of a coordinator that did not stop: killed, crashed or hanging.
type UncleanEnd struct {
	Instance string
	// LastSeenAt is the time of the last count in Redis.
	LastSeenAt time.Time
	// Unreported says that no coordinator has reported this end before: the caller has to.
	Unreported bool
}

// NoteRun notes that this coordinator runs. Where judge is set, NoteRun returns the others that ended without
// NoteCleanStop within RunMemory, the latest first. An end is Unreported for one caller only. A coordinator that was
// only cut off for a while disappears from the result once the coordinator counts again (Pulse). NoteRun is one call of
// a script. Errors are the store's.
func (s *Store) NoteRun(ctx context.Context, judge bool) ([]UncleanEnd, error) {
	c := newCall(s.keys.shards[0], 5)
	c.args = append(c.args, s.name, RunSilence.Milliseconds(), RunMemory.Milliseconds(), maxEnds, judge)
	run(ctx, s.loops, s.scripts.runs, []*call{c})
	if c.err != nil {
		return nil, c.err
	}
	now := time.Now()
	var ends []UncleanEnd
	for i := 0; i+2 < len(c.reply); i += 3 {
		name, _ := c.reply[i].(string)
		ago, _ := c.reply[i+1].(int64)
		first, _ := c.reply[i+2].(int64)
		seenAt := now.Add(-time.Duration(ago) * time.Millisecond)
		ends = append(ends, UncleanEnd{Instance: ownerOf(name), LastSeenAt: seenAt, Unreported: first == 1})
	}
	return ends, nil
}

// NoteCleanStop takes back the note of NoteRun: this coordinator is about to stop cleanly. Errors are the store's.
func (s *Store) NoteCleanStop(ctx context.Context) error {
	return translate(s.loops.HDel(ctx, runsKey(s.keys.shards[0]), s.name).Err())
}
