package redis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// listed is a message's place in a listing. Listings are in the order of time, id and producer, within one index the
// order of Redis.
type listed struct {
	ms   int64
	name halfmsg.Name
}

func (a listed) compare(b listed) int {
	return cmp.Or(cmp.Compare(a.ms, b.ms), strings.Compare(a.name.ID, b.name.ID),
		strings.Compare(a.name.Producer, b.name.Producer))
}

// cursor writes the place as the Cursor of the next page.
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

// List implements halfmsg.Inspector. A cursor of no earlier page is ErrCursor.
func (s *Store) List(ctx context.Context, query halfmsg.Query) (halfmsg.Page, error) {
	return s.list(ctx, query, s.keys.shards)
}

// ListReachable is List without the shards whose master is known not to answer.
func (s *Store) ListReachable(ctx context.Context, query halfmsg.Query) (halfmsg.Page, error) {
	shards, err := s.reachableShards(ctx)
	if err != nil {
		return halfmsg.Page{}, err
	}
	return s.list(ctx, query, shards)
}

func (s *Store) list(ctx context.Context, query halfmsg.Query, shards []string) (halfmsg.Page, error) {
	if !slices.Contains(halfmsg.Unfinished(), query.State) {
		return halfmsg.Page{}, fmt.Errorf("messages that are %s are not kept", query.State)
	}
	after, err := parseCursor(query.Cursor)
	if err != nil {
		return halfmsg.Page{}, err
	}
	query.Limit = max(1, query.Limit)
	begun := time.Now()
	var page halfmsg.Page
	for more := true; more; {
		var part listing
		if part, err = s.look(ctx, query, shards, after, s.eachShard(query, page)); err != nil {
			return halfmsg.Page{}, err
		}
		taken, err := s.appendRecords(ctx, &page, part.found, query)
		if err != nil {
			return halfmsg.Page{}, err
		}
		after, more = part.end, part.more
		if all := len(part.found); taken < all {
			after, more = part.found[taken-1], true
			part.looked = part.looked * taken / all // the rest is for the next page to look at
		}
		page.Looked += part.looked
		if more && (len(page.Records) >= query.Limit ||
			exhausted(page.Looked, query.Scan, time.Since(begun), query.Patience)) {
			page.Next = after.cursor()
			break
		}
	}
	return page, nil
}

// exhausted says whether a search ends before its page is full: after enough messages or time. Without a limit it goes
// on.
func exhausted(looked, scan int, took, patience time.Duration) bool {
	return scan > 0 && looked >= scan || patience > 0 && took >= patience
}

const (
	// lookSlice is how many messages Redis looks at for a listing before serving other calls. readSlice is how many whole
	// records Redis returns at a time; a record costs several times as much as a look. Either slice takes less than a
	// millisecond on an idle machine.
	lookSlice = 200
	readSlice = 50
)

// eachShard is how many messages each shard looks at next for a page.
func (s *Store) eachShard(query halfmsg.Query, page halfmsg.Page) int {
	shards := len(s.keys.shards)
	// Shards do not have their share of the oldest to the letter.
	most := min(4*(query.Limit-len(page.Records))/shards+16, lookSlice)
	if query.Filters() {
		most = lookSlice
	}
	if query.Scan > 0 {
		most = min(most, (query.Scan-page.Looked)/shards+1)
	}
	return most
}

// listing is a part of the messages of a state: the messages after a place, up to the end.
type listing struct {
	// found are the messages for a page, in order.
	found  []listed
	looked int
	end    listed
	// more says that messages follow behind the end.
	more bool
}

// look asks each shard for the messages after a place.
func (s *Store) look(
	ctx context.Context, query halfmsg.Query, shards []string, after listed, most int,
) (listing, error) {
	calls := make([]*call, len(shards))
	hints := hintsOf(query)
	for i, shard := range shards {
		calls[i] = newCall(shard, 11)
		calls[i].messages = most
		calls[i].args = append(calls[i].args, codeOf[query.State], after.ms, most,
			query.Producer, query.MinAge.Milliseconds(), hints.target, hints.fault, hints.word, query.IDPrefix,
			hints.routingKey, hints.header)
	}
	s.pacer.lowPriority(lookSlice, lowPriorityRests)(ctx, s.intake, s.scripts.list, calls)
	// More messages may follow behind the last one of an index, so later messages of other indexes cannot be listed yet.
	all := listing{end: listed{ms: math.MaxInt64}}
	for _, c := range calls {
		if c.err != nil {
			return listing{}, c.err
		}
		all.add(c.reply)
	}
	all.more = all.end.ms < math.MaxInt64
	all.found = slices.DeleteFunc(all.found, func(at listed) bool {
		return at.compare(after) <= 0 || at.compare(all.end) > 0
	})
	slices.SortFunc(all.found, listed.compare)
	return all, nil
}

// hints are texts that list.lua looks for in records and last errors, so that few messages are read that do not match.
// An empty hint matches all.
type hints struct {
	// target is in the JSON that begins a record, routingKey and header are in any part of the JSON.
	target, routingKey, header string
	// fault and word are in the last error, in lower case.
	fault, word string
}

func hintsOf(query halfmsg.Query) hints {
	h := hints{fault: strings.ToLower(query.Error), word: halfmsg.CauseWord(query.Cause)}
	of := header{shared: shared{Exchange: query.Exchange, RoutingKey: query.RoutingKey}}
	if query.Broker != halfmsg.DefaultBroker {
		of.Broker = query.Broker
	}
	if query.Exchange == halfmsg.DefaultExchange {
		of.Exchange = ""
	}
	line, _ := json.Marshal(of) // strings and numbers can always be written
	start, rest, _ := bytes.Cut(line, []byte(`"routing_key"`))
	if query.Exchange == "" {
		start, _, _ = bytes.Cut(start, []byte(`"exchange"`))
	}
	h.target = string(start[1:]) // a broker may precede the exchange
	if query.RoutingKey != "" {
		h.routingKey = `"routing_key"` + string(bytes.TrimSuffix(rest, []byte("}")))
	}
	if query.HeaderName != "" {
		line, _ = json.Marshal(map[string]string{query.HeaderName: query.HeaderValue})
		h.header = string(line[1 : len(line)-1])
	}
	return h
}

// add reads the reply of list.lua for a shard.
func (l *listing) add(reply []any) {
	for i, part := range reply {
		if i == 0 {
			looked, _ := part.(int64)
			l.looked += int(looked)
			continue
		}
		fields, _ := part.([]any)
		var producer string
		if len(fields) > 0 {
			producer, _ = fields[0].(string)
		}
		for k := 1; k+1 < len(fields); k += 2 {
			at := readListed(producer, fields[k], fields[k+1])
			switch {
			case k > 1:
				l.found = append(l.found, at)
			case at.name.ID != "" && at.compare(l.end) < 0:
				l.end = at
			}
		}
	}
}

func readListed(producer string, id, created any) listed {
	at := listed{name: halfmsg.Name{Producer: producer}}
	at.name.ID, _ = id.(string)
	stamp, _ := created.(string)
	ms, _ := strconv.ParseFloat(stamp, 64)
	at.ms = int64(ms)
	return at
}

// appendRecords reads messages, until the page is full, and says how many.
func (s *Store) appendRecords(
	ctx context.Context, page *halfmsg.Page, found []listed, query halfmsg.Query,
) (taken int, err error) {
	for taken < len(found) && len(page.Records) < query.Limit {
		batch := found[taken:min(len(found), taken+readSlice, taken+query.Limit-len(page.Records))]
		if err := s.appendBatch(ctx, page, batch, query); err != nil {
			return 0, err
		}
		taken += len(batch)
	}
	return taken, nil
}

// appendBatch reads messages and appends the matching ones to the page.
func (s *Store) appendBatch(ctx context.Context, page *halfmsg.Page, found []listed, query halfmsg.Query) error {
	return s.readBatch(ctx, found, query, func(_ int, r halfmsg.Record) { page.Records = append(page.Records, r) })
}

// readBatch reads messages and yields the matching ones. A message that has left the state is skipped. An unreadable
// message has the reason as its last error.
func (s *Store) readBatch(
	ctx context.Context, found []listed, query halfmsg.Query, yield func(i int, r halfmsg.Record),
) error {
	names := make([]halfmsg.Name, len(found))
	for i, at := range found {
		names[i] = at.name
	}
	records, errs := s.getAll(ctx, names, false, s.pacer.lowPriority(readSlice, lowPriorityRests))
	for i, record := range records {
		switch {
		case errs[i] == nil:
		case isCorrupt(errs[i]) && query.Broker != "": // its broker is not known
			continue
		case isCorrupt(errs[i]):
			record.LastError = errs[i].Error()
			record.State = query.State
			record.CreatedAt = time.UnixMilli(found[i].ms)
		case isNotFound(errs[i]):
			continue
		default:
			return errs[i]
		}
		if record.State == query.State && query.Matches(&record) {
			yield(i, record)
		}
	}
	return nil
}
