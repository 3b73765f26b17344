package redisstore

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Get implements halfmsg.Inspector. Of a message whose record cannot be read it returns what is known, and ErrCorrupt.
func (s *Store) Get(ctx context.Context, name halfmsg.Name) (halfmsg.Record, error) {
	records, errs := s.show(ctx, []halfmsg.Name{name}, true)
	return records[0], errs[0]
}

// show reads messages, with or without their bodies.
func (s *Store) show(ctx context.Context, names []halfmsg.Name, whole bool) ([]halfmsg.Record, []error) {
	records, errs := make([]halfmsg.Record, len(names)), make([]error, len(names))
	flag := "0"
	if whole {
		flag = "1"
	}
	p := plan{store: s, head: []any{flag}, room: 1, each: func(args []any, i int) []any { return append(args, names[i].ID) }}
	calls := p.calls(s.scripts.show, s.places(len(names), func(i int) halfmsg.Name { return names[i] }))
	run(ctx, s.intake, s.scripts.show, calls)
	for _, c := range calls {
		for n, i := range c.items {
			records[i], errs[i] = s.shown(c, n, names[i])
		}
	}
	return records, errs
}

func (s *Store) shown(c *call, n int, name halfmsg.Name) (halfmsg.Record, error) {
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
	record.DueAt = time.UnixMilli(due)
	if token != "" {
		record.LeaseOwner, record.LeaseUntil = ownerOf(token), record.DueAt
	}
	var err error
	if record.CreatedAt, err = decode([]byte(text), record.State, &record.Message); err != nil {
		err = corrupt(s.keys.record(name), err.Error())
	}
	record.UpdatedAt = record.CreatedAt
	readNotes(fields[4:], &record)
	return record, err
}

// readNotes fills in what the notes say: names and values in turn.
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
		case "updated_at", "sendable_at":
			if at := timeAt(number(fields[i+1])); at.After(record.UpdatedAt) {
				record.UpdatedAt = at
			}
		}
	}
}

// listed is a message's place in a listing. The order is that of time, id and producer: within one index it is Redis' own.
type listed struct {
	ms   int64
	name halfmsg.Name
}

func (a listed) compare(b listed) int {
	return cmp.Or(cmp.Compare(a.ms, b.ms), strings.Compare(a.name.ID, b.name.ID), strings.Compare(a.name.Producer, b.name.Producer))
}

// cursor writes the place down as the Cursor of the page that follows it.
func (a listed) cursor() string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(a.ms, 10) + " " + a.name.String()))
}

func parseCursor(text string) (listed, error) {
	if text == "" {
		return listed{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		stamp, name, _ := strings.Cut(string(raw), " ")
		var at listed
		if at.ms, err = strconv.ParseInt(stamp, 10, 64); err == nil {
			at.name, err = halfmsg.ParseName(name)
		}
		if err == nil {
			return at, nil
		}
	}
	return listed{}, fmt.Errorf("%w: %w", ErrCursor, err)
}

// List implements halfmsg.Inspector. A cursor that no page has given is ErrCursor.
func (s *Store) List(ctx context.Context, query halfmsg.Query) (halfmsg.Page, error) {
	if !slices.Contains(halfmsg.Kept(), query.State) {
		return halfmsg.Page{}, fmt.Errorf("messages that are %s are not kept", query.State)
	}
	after, err := parseCursor(query.Cursor)
	if err != nil {
		return halfmsg.Page{}, err
	}
	query.Limit = max(1, query.Limit)
	var page halfmsg.Page
	for more := true; more; {
		var found []listed
		if found, more, err = s.names(ctx, query, after, want(query, page)); err != nil {
			return halfmsg.Page{}, err
		}
		taken, err := s.appendRecords(ctx, &page, found, query)
		if err != nil {
			return halfmsg.Page{}, err
		}
		if taken > 0 {
			after = found[taken-1]
		}
		full := len(page.Records) >= query.Limit || query.Scan > 0 && page.Looked >= query.Scan
		if more = more || taken < len(found); more && full {
			page.Next = after.cursor()
			break
		}
	}
	return page, nil
}

// filterBatch is how many messages are read at a time to see which of them match, and filterNames how many names the
// indexes are asked for at a time: they tell of several times as many when there are many producers.
const (
	filterBatch = 2000
	filterNames = 250
)

// want is how many more messages to look at for a page.
func want(query halfmsg.Query, page halfmsg.Page) int {
	most := query.Limit - len(page.Records)
	if query.Filters() {
		most = filterBatch
	}
	if query.Scan > 0 {
		most = min(most, query.Scan-page.Looked)
	}
	return most
}

// names lists at most limit messages that come after a place, and says whether there are more.
func (s *Store) names(ctx context.Context, query halfmsg.Query, after listed, limit int) ([]listed, bool, error) {
	each := limit
	if query.Filters() {
		each = min(limit, filterNames)
	}
	most := min(each, 4*each/len(s.keys.shards)+16)
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(s.scripts.list, shard, 4)
		calls[i].args = append(calls[i].args, codeOf[query.State], after.ms, most, query.Producer, query.MinAge.Milliseconds())
	}
	run(ctx, s.intake, s.scripts.list, calls)
	var all []listed
	// Behind the last that an index told of there may be others, so nothing later than that can be listed yet.
	horizon := listed{ms: math.MaxInt64}
	for _, c := range calls {
		if c.err != nil {
			return nil, false, c.err
		}
		for _, reply := range c.reply {
			found, truncated := readListed(reply)
			if last := len(found) - 1; truncated && found[last].compare(horizon) < 0 {
				horizon = found[last]
			}
			all = append(all, found...)
		}
	}
	told := len(all)
	all = slices.DeleteFunc(all, func(at listed) bool { return at.compare(horizon) > 0 })
	more := len(all) < told || horizon.ms < math.MaxInt64
	all = slices.DeleteFunc(all, func(at listed) bool { return at.compare(after) <= 0 })
	slices.SortFunc(all, listed.compare)
	if len(all) > limit {
		return all[:limit], true, nil
	}
	return all, more, nil
}

// readListed reads what list.lua tells of one producer.
func readListed(reply any) (found []listed, truncated bool) {
	fields, _ := reply.([]any)
	if len(fields) < 4 {
		return nil, false
	}
	producer, _ := fields[0].(string)
	for i := 2; i+1 < len(fields); i += 2 {
		id, _ := fields[i].(string)
		stamp, _ := fields[i+1].(string)
		ms, _ := strconv.ParseFloat(stamp, 64)
		found = append(found, listed{ms: int64(ms), name: halfmsg.Name{Producer: producer, ID: id}})
	}
	return found, fields[1] == "1"
}

// appendRecords reads messages, puts those on the page that still stand in the state and match, until it is full, and
// says how many were looked at. One that cannot be read is listed with the reason as its last error.
func (s *Store) appendRecords(ctx context.Context, page *halfmsg.Page, found []listed, query halfmsg.Query) (taken int, err error) {
	names := make([]halfmsg.Name, len(found))
	for i, at := range found {
		names[i] = at.name
	}
	records, errs := s.show(ctx, names, false)
	for i, record := range records {
		if len(page.Records) == query.Limit {
			break
		}
		taken++
		switch {
		case errs[i] == nil:
		case isCorrupt(errs[i]):
			record.LastError = errs[i].Error()
			record.State = query.State
			record.CreatedAt = time.UnixMilli(found[i].ms)
		case isNotFound(errs[i]):
			continue
		default:
			return 0, errs[i]
		}
		if record.State == query.State && query.Matches(&record) {
			record.Body = nil
			page.Records = append(page.Records, record)
		}
	}
	page.Looked += taken
	return taken, nil
}

// Stats implements halfmsg.Inspector.
func (s *Store) Stats(ctx context.Context) ([]halfmsg.Stat, error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(s.scripts.stats, shard, 0)
	}
	run(ctx, s.intake, s.scripts.stats, calls)
	stats := make([]halfmsg.Stat, 0, len(halfmsg.Kept()))
	for i, state := range halfmsg.Kept() {
		stat := halfmsg.Stat{State: state}
		for _, c := range calls {
			if c.err != nil {
				return nil, c.err
			}
			count, _ := c.answer(2 * i).(int64)
			ms, _ := c.answer(2*i + 1).(int64)
			stat.Count += count
			if at := timeAt(ms); ms > 0 && (stat.OldestAt.IsZero() || at.Before(stat.OldestAt)) {
				stat.OldestAt = at
			}
		}
		stats = append(stats, stat)
	}
	slices.SortFunc(stats, func(a, b halfmsg.Stat) int { return cmp.Compare(a.State, b.State) })
	return stats, nil
}

// Backlog counts SENDABLE messages that are older than age and could be sent now: those that wait for us, not for their
// delay or their next try. A message that an owner holds is not counted.
func (s *Store) Backlog(ctx context.Context, age time.Duration) (waiting int64, err error) {
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(s.scripts.backlog, shard, 2)
		calls[i].args = append(calls[i].args, codeOf[halfmsg.Sendable], age.Milliseconds())
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
