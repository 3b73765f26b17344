package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// listReceipts lists receipts, a part of Redis's keys at a time. The cursor is the number of the master and its own.
func (s *Store) listReceipts(ctx context.Context, query halfmsg.FinishedQuery) (halfmsg.FinishedPage, error) {
	if query.Producer != "" && query.ID != "" {
		return s.oneReceipt(ctx, query)
	}
	masters, err := s.masters(ctx)
	if err != nil {
		return halfmsg.FinishedPage{}, translate(err)
	}
	var at receiptCursor
	if query.Cursor != "" {
		_, err := fmt.Sscanf(query.Cursor, "%d.%d", &at.master, &at.next)
		if err != nil || at.master < 0 || at.master >= len(masters) {
			return halfmsg.FinishedPage{}, fmt.Errorf("%w: %q", ErrCursor, query.Cursor)
		}
	}
	begun := time.Now()
	var page halfmsg.FinishedPage
	for at.master < len(masters) {
		found, looked, next, err := s.scanReceipts(ctx, masters[at.master], at.next, query)
		if err != nil {
			return halfmsg.FinishedPage{}, translate(err)
		}
		page.Messages, page.Looked = append(page.Messages, found...), page.Looked+looked
		if at.next = next; next == 0 {
			at.master++
		}
		if len(page.Messages) >= query.Limit ||
			exhausted(page.Looked, query.Scan, time.Since(begun), query.Patience) {
			break
		}
	}
	if at.master < len(masters) {
		page.Next = fmt.Sprintf("%d.%d", at.master, at.next)
	}
	return page, nil
}

// receiptCursor is how far the masters were scanned.
type receiptCursor struct {
	master int
	next   uint64
}

// masters are the masters in the order of their addresses.
func (s *Store) masters(ctx context.Context) ([]*redis.Client, error) {
	gathered := make(chan *redis.Client, maxShards)
	err := eachReachable(ctx, s.loops, func(_ context.Context, master *redis.Client) error {
		gathered <- master
		return nil
	})
	close(gathered)
	var masters []*redis.Client
	for master := range gathered {
		masters = append(masters, master)
	}
	slices.SortFunc(masters, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	return masters, err
}

// receiptScan is how many keys one step looks at, of all keys of the master.
const receiptScan = 500

// scanReceipts makes one step of SCAN and reads the records that it names.
func (s *Store) scanReceipts(
	ctx context.Context, master *redis.Client, from uint64, query halfmsg.FinishedQuery,
) (found []halfmsg.Finished, looked int, next uint64, err error) {
	pattern := s.keys.pattern() + "}:" + cmp.Or(query.Producer, "*") + ":" + recordPrefix + cmp.Or(query.ID, "*")
	names, next, err := master.Scan(ctx, from, pattern, receiptScan).Result()
	if err != nil || len(names) == 0 {
		return nil, receiptScan, next, err
	}
	pipe := master.Pipeline()
	heads := make([]*redis.StringCmd, len(names))
	for i, name := range names {
		heads[i] = pipe.GetRange(ctx, name, 0, maxReceipt)
	}
	_, err = pipe.Exec(ctx)
	for i, name := range names {
		text, headErr := heads[i].Result()
		var fromRedis redis.Error
		if headErr != nil && !errors.As(headErr, &fromRedis) {
			return nil, 0, 0, err
		}
		key := s.keys.parse(name)
		f, is := receiptOf(halfmsg.Name{Producer: key.producer, ID: key.id}, text)
		if is && key.kind == messageKey && query.Matches(&f) {
			found = append(found, f)
		}
	}
	return found, receiptScan, next, nil
}

// maxReceipt is more than a receipt has.
const maxReceipt = 99

// receiptOf reads a receipt; a record is none.
func receiptOf(name halfmsg.Name, text string) (halfmsg.Finished, bool) {
	t, err := decodeTrace([]byte(text))
	ended := halfmsg.Ending(t.kind)
	if err != nil || ended != halfmsg.EndedDone && ended != halfmsg.EndedRolledBack {
		return halfmsg.Finished{}, false
	}
	f := halfmsg.Finished{Ended: ended, At: t.at, Fingerprint: t.digest}
	f.Name = name
	return f, true
}

// oneReceipt is the receipt of a message whose whole name is known.
func (s *Store) oneReceipt(ctx context.Context, query halfmsg.FinishedQuery) (halfmsg.FinishedPage, error) {
	name := halfmsg.Name{Producer: query.Producer, ID: query.ID}
	record, err := s.Get(ctx, name)
	if isNotFound(err) {
		return halfmsg.FinishedPage{}, nil
	}
	if err != nil {
		return halfmsg.FinishedPage{}, err
	}
	f := halfmsg.Finished{Ended: halfmsg.Ending(record.State.String()), At: record.UpdatedAt}
	f.Name = name
	if !record.State.Final() || !query.Matches(&f) {
		return halfmsg.FinishedPage{}, nil
	}
	return halfmsg.FinishedPage{Messages: []halfmsg.Finished{f}}, nil
}
