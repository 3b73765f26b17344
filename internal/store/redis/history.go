package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// compareEntries compares ids of entries.
func compareEntries(a, b string) int {
	msA, nA, _ := strings.Cut(a, "-")
	msB, nB, _ := strings.Cut(b, "-")
	return cmp.Or(cmp.Compare(number(msA), number(msB)), cmp.Compare(number(nA), number(nB)))
}

// ListFinished implements halfmsg.Historian.
func (s *Store) ListFinished(ctx context.Context, query halfmsg.FinishedQuery) (halfmsg.FinishedPage, error) {
	query.Limit = max(1, query.Limit)
	if query.Receipts || !s.Archives() {
		return s.listReceipts(ctx, query)
	}
	if query.Cursor != "" && !isEntry(query.Cursor) {
		return halfmsg.FinishedPage{}, fmt.Errorf("%w: %q", ErrCursor, query.Cursor)
	}
	begun := time.Now()
	page := halfmsg.FinishedPage{Next: query.Cursor}
	for {
		part, err := s.lookBack(ctx, query, page.Next)
		if err != nil {
			return halfmsg.FinishedPage{}, err
		}
		page.Looked, page.Next = page.Looked+part.Looked, part.Next
		page.Messages = append(page.Messages, part.Messages...)
		if len(page.Messages) >= query.Limit {
			return cutPage(page, query.Limit), nil
		}
		if page.Next == "" || exhausted(page.Looked, query.Scan, time.Since(begun), query.Patience) {
			return page, nil
		}
	}
}

// cutPage ends a page after some messages. Entries of several shards may have the same id; they stay together.
func cutPage(page halfmsg.FinishedPage, limit int) halfmsg.FinishedPage {
	for limit < len(page.Messages) && page.Messages[limit].Entry == page.Messages[limit-1].Entry {
		limit++
	}
	if limit < len(page.Messages) {
		page.Messages = page.Messages[:limit]
		page.Next = page.Messages[limit-1].Entry
	}
	return page
}

func isEntry(text string) bool {
	var ms, n uint64
	got, err := fmt.Sscanf(text, "%d-%d", &ms, &n)
	return err == nil && got == 2 && fmt.Sprintf("%d-%d", ms, n) == text
}

// lookBack lists the entries before one, down to the newest id at which a shard's part ends.
func (s *Store) lookBack(
	ctx context.Context, query halfmsg.FinishedQuery, before string,
) (halfmsg.FinishedPage, error) {
	newest, oldest := "+", "-"
	switch {
	case before != "":
		newest = "(" + before
	case !query.Until.IsZero():
		newest = "(" + firstEntry(query.Until)
	}
	if !query.Since.IsZero() {
		oldest = firstEntry(query.Since)
	}
	calls := make([]*call, len(s.keys.shards))
	for i, shard := range s.keys.shards {
		calls[i] = newCall(shard, 6)
		calls[i].args = append(calls[i].args, newest, oldest, lookSlice, query.Producer, query.ID, string(query.Ended))
	}
	s.pacer.backlog(slice, backlogRests)(ctx, s.intake, s.scripts.history, calls)
	return s.mergeEntries(calls, query)
}

// firstEntry is the first id of a time. Redis knows no id before 0-1, and nothing has ended before.
func firstEntry(t time.Time) string {
	if t.UnixMilli() <= 0 {
		return "0-1"
	}
	return fmt.Sprintf("%d-0", t.UnixMilli())
}

// mergeEntries puts the entries of the shards into one order.
func (s *Store) mergeEntries(calls []*call, query halfmsg.FinishedQuery) (page halfmsg.FinishedPage, err error) {
	for _, c := range calls {
		if c.err != nil {
			return page, c.err
		}
		page.Looked += int(counted(c, 0))
		if last, _ := c.answer(1).(string); counted(c, 2) == 1 && compareEntries(last, page.Next) > 0 {
			page.Next = last
		}
	}
	for _, c := range calls {
		for n := 3; n < len(c.reply); n++ {
			found, is := readEntry(c.answer(n))
			if is && compareEntries(found.Entry, page.Next) >= 0 && query.Matches(&found) {
				page.Messages = append(page.Messages, found)
			}
		}
	}
	slices.SortStableFunc(page.Messages, func(a, b halfmsg.Finished) int {
		return cmp.Or(compareEntries(b.Entry, a.Entry), strings.Compare(a.ID, b.ID))
	})
	return page, nil
}

// readEntry reads an entry as history.lua returns it.
func readEntry(answer any) (halfmsg.Finished, bool) {
	entry, _ := answer.([]any)
	if len(entry) != 3 {
		return halfmsg.Finished{}, false
	}
	id, _ := entry[0].(string)
	message, _ := entry[1].(string)
	record, _ := entry[2].(string)
	return finishedOf(id, message, record, decodeLine)
}

// The fields of an entry.
const (
	messageField = "message" // ENDED CREATED COMMITTED COPIES BODY PRODUCER ID
	recordField  = "record"
)

// finishedOf is the message of an entry; false where the entry is not one of ours.
func finishedOf(
	entry, message, record string, read func([]byte, halfmsg.State, *halfmsg.Message) (trace, error),
) (halfmsg.Finished, bool) {
	words := strings.Split(message, " ")
	if len(words) != 7 {
		return halfmsg.Finished{}, false
	}
	f := halfmsg.Finished{
		Entry: entry, At: timeAt(msOf(entry)), Ended: halfmsg.Ending(words[0]), CreatedAt: timeAt(number(words[1])),
		CommittedAt: timeAt(number(words[2])), Copies: int(number(words[3])), BodyLeftOut: words[4] != "whole",
	}
	f.Name = halfmsg.Name{Producer: words[5], ID: words[6]}
	if f.BodyLeftOut {
		read = decodeLine
	}
	t, err := read([]byte(record), halfmsg.Sendable, &f.Message)
	if err != nil {
		f.Damaged = fmt.Errorf("%w: entry %s of the archive: %w", halfmsg.ErrCorrupt, entry, err)
	}
	f.Fingerprint = t.digest
	return f, true
}

// GetFinished implements halfmsg.Historian.
func (s *Store) GetFinished(ctx context.Context, name halfmsg.Name, entry string) (halfmsg.Finished, error) {
	if entry == "" {
		if f, err := s.ofReceipt(ctx, name); !isNotFound(err) {
			return f, err
		}
		newest, err := s.newestEntries(ctx, []halfmsg.Name{name})
		if err != nil {
			return halfmsg.Finished{}, err
		}
		entry = newest[name]
	}
	if !isEntry(entry) {
		return halfmsg.Finished{}, halfmsg.ErrNotFound
	}
	return s.getEntry(ctx, name, entry, entry)
}

// ofReceipt reads the entry of a message that has a receipt. A receipt has the time of its entry. A damaged record is
// no receipt.
func (s *Store) ofReceipt(ctx context.Context, name halfmsg.Name) (halfmsg.Finished, error) {
	record, err := s.Get(ctx, name)
	if err != nil && !isCorrupt(err) {
		return halfmsg.Finished{}, err
	}
	if err != nil || !record.State.Final() {
		return halfmsg.Finished{}, halfmsg.ErrNotFound
	}
	at := fmt.Sprint(record.UpdatedAt.UnixMilli())
	return s.getEntry(ctx, name, at, at)
}

// getEntry reads the newest entry of a message between two ids.
func (s *Store) getEntry(ctx context.Context, name halfmsg.Name, from, to string) (halfmsg.Finished, error) {
	// A message with an ordering key has ended in the shard of its key, which its name does not tell.
	pipe := s.intake.Pipeline()
	for _, shard := range s.keys.shards {
		pipe.XRevRange(ctx, shard+archiveName, to, from)
	}
	answers, err := pipe.Exec(ctx)
	if err != nil {
		return halfmsg.Finished{}, translate(err)
	}
	var entries []redis.XMessage
	for _, answer := range answers {
		if found, is := answer.(*redis.XMessageSliceCmd); is {
			entries = append(entries, found.Val()...)
		}
	}
	for _, e := range entries {
		message, _ := e.Values[messageField].(string)
		if !strings.HasSuffix(message, " "+name.Producer+" "+name.ID) {
			continue
		}
		record, _ := e.Values[recordField].(string)
		if f, is := finishedOf(e.ID, message, record, decode); is {
			return f, nil
		}
	}
	return halfmsg.Finished{}, halfmsg.ErrNotFound
}

// newestEntries searches the archive once for the newest entries of messages, by their names.
func (s *Store) newestEntries(ctx context.Context, names []halfmsg.Name) (map[halfmsg.Name]string, error) {
	newest := map[halfmsg.Name]string{}
	for _, name := range names {
		newest[name] = ""
	}
	query, missing := halfmsg.FinishedQuery{Limit: lookSlice}, len(newest)
	if missing == 1 {
		query.Producer, query.ID = names[0].Producer, names[0].ID
	}
	for s.Archives() && missing > 0 {
		page, err := s.ListFinished(ctx, query)
		if err != nil {
			return nil, err
		}
		for _, m := range page.Messages {
			if entry, wanted := newest[m.Name]; wanted && entry == "" {
				newest[m.Name] = m.Entry
				missing--
			}
		}
		if query.Cursor = page.Next; query.Cursor == "" {
			break
		}
	}
	return newest, nil
}
