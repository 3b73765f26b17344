package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/peers"
)

// The states of a report, as coordinators.lua writes them.
const (
	reportRunning = "running"
	reportStopped = "stopped"
	reportEnded   = "ended"
)

// ShareReport implements peers.Store by one call of a script. A coordinator that was only cut off for a while is no
// ended one once it counts again (Pulse). An end is Unreported for one caller only. Errors are the store's.
func (s *Store) ShareReport(
	ctx context.Context, own peers.Text, silence time.Duration, findEnds bool,
) ([]peers.Entry, error) {
	state := reportRunning
	if own.Stopped {
		state = reportStopped
	}
	c := newCall(s.keys.shards[0], 8)
	c.args = append(c.args, s.name, state, own.Lasting, own.Passing,
		silence.Milliseconds(), peers.Memory.Milliseconds(), peers.MaxReports, findEnds)
	run(ctx, s.loops, s.scripts.coordinators, []*call{c})
	if c.err != nil {
		return nil, c.err
	}
	const fields = 7
	var entries []peers.Entry
	for i := 0; i+fields <= len(c.reply); i += fields {
		text := func(field int) string {
			value, _ := c.reply[i+field].(string)
			return value
		}
		number := func(field int) int64 {
			value, _ := c.reply[i+field].(int64)
			return value
		}
		entries = append(entries, peers.Entry{
			Instance: ownerOf(text(0)),
			Text:     peers.Text{Lasting: text(5), Passing: text(6), Stopped: text(1) == reportStopped},
			Ago:      time.Duration(number(3)) * time.Millisecond,
			Unseen:   time.Duration(number(4)) * time.Millisecond,
			Ended:    text(1) == reportEnded, Unreported: number(2) == 1,
		})
	}
	return entries, nil
}

// RecordEnded implements peers.Store. Errors are the store's; after an error some texts may be in the record. Redis's
// clock decides what is old: the record must survive a coordinator with a wrong clock.
func (s *Store) RecordEnded(ctx context.Context, texts []string) error {
	key := problemsKey(s.config.Prefix)
	added, err := s.loops.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		addTexts(ctx, pipe, key, texts, peers.MaxEnded)
		pipe.PExpire(ctx, key, peers.EndedMemory)
		return nil
	})
	if err != nil {
		return translate(err)
	}
	for _, one := range added {
		if id, is := one.(*redis.StringCmd); is {
			oldest := msOf(id.Val()) - peers.EndedMemory.Milliseconds()
			// The next record trims what this one could not.
			_ = s.loops.XTrimMinIDApprox(ctx, key, strconv.FormatInt(oldest, 10), 0).Err()
			break
		}
	}
	return nil
}

// ReadEnded implements peers.Store. Errors are the store's.
func (s *Store) ReadEnded(ctx context.Context, since time.Time) ([]peers.Recorded, error) {
	key := problemsKey(s.config.Prefix)
	from := strconv.FormatInt(since.UnixMilli(), 10)
	read, err := s.loops.XRevRangeN(ctx, key, "+", from, peers.MaxEnded).Result()
	if err != nil {
		return nil, translate(err)
	}
	entries := make([]peers.Recorded, len(read))
	for i, m := range read {
		entries[i].At = time.UnixMilli(msOf(m.ID))
		entries[i].Text, _ = m.Values[auditText].(string)
	}
	return entries, nil
}
