package redis

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Get implements halfmsg.Inspector. For a message with an unreadable record Get returns the known fields and
// ErrCorrupt.
func (s *Store) Get(ctx context.Context, name halfmsg.Name) (halfmsg.Record, error) {
	records, errs := s.getAll(ctx, []halfmsg.Name{name}, true, run)
	return records[0], errs[0]
}

// getAll reads messages, with or without their bodies.
func (s *Store) getAll(
	ctx context.Context, names []halfmsg.Name, whole bool, way runner,
) ([]halfmsg.Record, []error) {
	records, errs := make([]halfmsg.Record, len(names)), make([]error, len(names))
	flag := "0"
	if whole {
		flag = "1"
	}
	p := plan{
		store: s, head: always(flag), room: 1, each: func(args []any, i int) []any { return append(args, names[i].ID) },
	}
	get := func(places []place) {
		calls := p.calls(places)
		way(ctx, s.intake, s.scripts.get, calls)
		for _, c := range calls {
			for n, i := range c.items {
				records[i], errs[i] = s.shown(c, n, names[i], whole)
			}
		}
	}
	name := func(i int) halfmsg.Name { return names[i] }
	get(s.places(len(names), name))
	s.follow(ctx, len(names), name, func(i int) bool { return isNotFound(errs[i]) }, get)
	return records, errs
}

func (s *Store) shown(c *call, n int, name halfmsg.Name, whole bool) (halfmsg.Record, error) {
	record := halfmsg.Record{Message: halfmsg.Message{Name: name}}
	fields, is := c.answer(n).([]any)
	if !is || len(fields) < 4 {
		result := s.result(c, n, name)
		if result.Err == nil {
			result.Err = halfmsg.ErrNotFound
		}
		return record, result.Err
	}
	code, _ := fields[0].(int64)
	due, _ := fields[1].(int64)
	token, _ := fields[2].(string)
	text, _ := fields[3].(string)
	record.State = stateOf[code]
	if record.State.Final() {
		t, err := decodeTrace([]byte(text))
		if err != nil {
			return record, corrupt(s.keys.record(name), err.Error())
		}
		record.UpdatedAt = t.at
		return record, nil
	}
	if due < behind {
		record.DueAt = time.UnixMilli(due)
	}
	if token != "" {
		record.LeaseOwner, record.LeaseUntil = ownerOf(token), record.DueAt
	}
	read := decodeLine
	if whole {
		read = decode
	}
	t, err := read([]byte(text), record.State, &record.Message)
	if err != nil {
		err = corrupt(s.keys.record(name), err.Error())
	}
	record.CreatedAt, record.UpdatedAt = t.at, t.at
	readNotes(fields[4:], &record)
	return record, err
}

// readNotes fills in the fields from the notes: names and values in turn.
func readNotes(fields []any, record *halfmsg.Record) {
	for i := 0; i+1 < len(fields); i += 2 {
		switch fields[i] {
		case "confirms":
			record.ConfirmAttempts = int(number(fields[i+1]))
		case "publishes":
			record.PublishAttempts = int(number(fields[i+1]))
		case "deletes":
			record.DeleteAttempts = int(number(fields[i+1]))
		case "error":
			record.LastError, _ = fields[i+1].(string)
		case "error_at":
			record.ErrorAt = timeAt(number(fields[i+1]))
		case "updated_at":
			record.UpdatedAt = later(record.UpdatedAt, timeAt(number(fields[i+1])))
		case "sendable_at":
			record.SendableAt = timeAt(number(fields[i+1]))
			record.UpdatedAt = later(record.UpdatedAt, record.SendableAt)
		case "held_by":
			record.HeldBy, _ = fields[i+1].(string)
		case "awaited":
			record.AwaitedSince = timeAt(number(fields[i+1]))
		case "parked":
			record.Parked = true
		case "events":
			text, _ := fields[i+1].(string)
			record.Timeline = readTimeline(text)
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Stats implements halfmsg.Inspector.
func (s *Store) Stats(ctx context.Context) ([]halfmsg.Stat, error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(shard, 0)
	}
	run(ctx, s.intake, s.scripts.stats, calls)
	stats := make([]halfmsg.Stat, 0, len(halfmsg.Unfinished()))
	for i, state := range halfmsg.Unfinished() {
		stat := halfmsg.Stat{State: state}
		for _, c := range calls {
			if c.err != nil {
				return nil, c.err
			}
			count, _ := c.answer(3 * i).(int64)
			stat.Count += count
			stat.OldestAt = earlier(stat.OldestAt, c.answer(3*i+1))
			if state.HasLoop() {
				stat.FirstDueAt = earlier(stat.FirstDueAt, c.answer(3*i+2))
			}
		}
		if state == halfmsg.Sendable {
			stat.Held = heldOf(calls)
		}
		if state == halfmsg.Pending {
			stat.Producers = pendingOf(calls)
		}
		stats = append(stats, stat)
	}
	slices.SortFunc(stats, func(a, b halfmsg.Stat) int { return cmp.Compare(a.State, b.State) })
	return stats, nil
}

// heldOf adds up the SENDABLE messages that wait for their turn, which follow the counts of the states.
func heldOf(calls []*call) (held int64) {
	for _, c := range calls {
		n, _ := c.answer(3 * len(halfmsg.Unfinished())).(int64)
		held += n
	}
	return held
}

// pendingOf adds up the PENDING messages of each producer, which follow.
func pendingOf(calls []*call) map[string]int64 {
	producers := map[string]int64{}
	for _, c := range calls {
		for i := 3*len(halfmsg.Unfinished()) + 1; i+1 < len(c.reply); i += 2 {
			name, _ := c.reply[i].(string)
			count, _ := c.reply[i+1].(int64)
			producers[name] += count
		}
	}
	return producers
}

// earlier is the earlier of a time and the milliseconds of a script's answer, where 0 is none.
func earlier(known time.Time, answer any) time.Time {
	ms, _ := answer.(int64)
	if at := timeAt(ms); ms > 0 && (known.IsZero() || at.Before(known)) {
		return at
	}
	return known
}

// Backlog counts SENDABLE messages older than age that could be sent now, not messages that wait for their delay or
// their next try, nor those that are parked for the brokers without. Where that is every broker, none counts: none
// is claimed then, and none is parked. A leased message is not counted, nor is one of a shard whose master does not
// answer.
func (s *Store) Backlog(ctx context.Context, age time.Duration, without ...string) (waiting int64, err error) {
	shards, err := s.reachableShards(ctx)
	if err != nil {
		return 0, err
	}
	brokers := slices.DeleteFunc(append([]string{""}, s.config.Brokers...), func(broker string) bool {
		return slices.Contains(without, broker)
	})
	if len(brokers) == 0 {
		return 0, nil
	}
	calls := make([]*call, len(shards))
	for i, shard := range shards {
		calls[i] = newCall(shard, 2)
		calls[i].args = append(calls[i].args, codeOf[halfmsg.Sendable], age.Milliseconds())
		calls[i].args = append(calls[i].args, anys(brokers)...)
	}
	run(ctx, s.intake, s.scripts.backlog, calls)
	for _, c := range calls {
		if c.err != nil {
			return 0, c.err
		}
		count, _ := c.answer(0).(int64)
		waiting += count
	}
	return waiting, nil
}
