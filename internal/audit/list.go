package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reading asks a Store for entries of a stream.
type Reading struct {
	Stream Stream
	// Before is the id of an entry; empty: from the newest on.
	Before string
	// Since is the oldest time; zero: any.
	Since time.Time
	Count int
}

// Entry is a kept text.
type Entry struct {
	// ID grows with each entry: milliseconds, a hyphen, and a number.
	ID   string
	Text string
}

// Query selects kept records. The zero value of a field selects all.
type Query struct {
	// By is a part of the name or of the address of the caller, Action a part of the action.
	By, Action string
	Result     Result
	// Since is the oldest time, by the clock of Redis.
	Since time.Time
	// Limit is how many records a page has at most. Required.
	Limit int
	// Token is the Next of the page before.
	Token string
}

// Page is a part of the kept records, the newest first.
type Page struct {
	Records []Record
	// Next leads to older records; empty: there are none.
	Next string
}

// ErrBadToken is the error of a Token that no Page has given.
var ErrBadToken = errors.New("the page token is not one that this listing has given")

const (
	// readBatch is how many entries are read at once, and maxScan how many are looked at for a page.
	readBatch, maxScan = 200, 5000
)

// placeForm is a place in a stream: the id of an entry.
var placeForm = regexp.MustCompile(`^\d{1,19}-\d{1,19}$`)

// List returns a page of the kept records, of all coordinators. With a selective query a page may hold fewer records
// than the limit, or none, and still lead to older ones.
func (t *Trail) List(ctx context.Context, q Query) (Page, error) {
	t.mu.Lock()
	store := t.store
	t.mu.Unlock()
	places := strings.Split(q.Token, ".")
	if q.Token == "" {
		places = make([]string, len(streams))
	}
	if len(places) != len(streams) || slices.ContainsFunc(places, notPlace) {
		return Page{}, ErrBadToken
	}
	if store == nil {
		return Page{}, errNoStore
	}
	l := &listing{store: store, query: q}
	for i, stream := range streams {
		ofRefused := stream == Refusals || stream == Strangers
		l.readers = append(l.readers, &reader{
			stream: stream, before: places[i], ended: q.Result != "" && ofRefused != (q.Result == Refused),
		})
	}
	return l.page(ctx)
}

func notPlace(text string) bool { return text != "" && !placeForm.MatchString(text) }

// listing merges the streams.
type listing struct {
	store   Store
	query   Query
	readers []*reader
}

// reader reads one stream.
type reader struct {
	stream Stream
	// before is the id of the last entry that was taken.
	before  string
	entries []Entry
	ended   bool
}

func (l *listing) page(ctx context.Context) (Page, error) {
	var page Page
	for range maxScan {
		newest, err := l.newest(ctx)
		if err != nil {
			return page, err
		}
		if newest == nil {
			return page, nil
		}
		if r, fits := newest.takeRecord(l.query); fits {
			page.Records = append(page.Records, r)
		}
		if len(page.Records) == l.query.Limit {
			break
		}
	}
	places := make([]string, len(l.readers))
	for i, r := range l.readers {
		places[i] = r.before
	}
	page.Next = strings.Join(places, ".")
	return page, nil
}

// newest is the reader whose next entry is the newest; nil when no entry is left.
func (l *listing) newest(ctx context.Context) (newest *reader, err error) {
	for _, r := range l.readers {
		if err := l.fill(ctx, r); err != nil {
			return nil, err
		}
		if len(r.entries) > 0 && (newest == nil || newer(r.entries[0].ID, newest.entries[0].ID)) {
			newest = r
		}
	}
	return newest, nil
}

// fill reads entries where none is left.
func (l *listing) fill(ctx context.Context, r *reader) (err error) {
	if r.ended || len(r.entries) > 0 {
		return nil
	}
	r.entries, err = l.store.ReadAudit(ctx, Reading{
		Stream: r.stream, Before: r.before, Since: l.query.Since, Count: readBatch,
	})
	r.ended = len(r.entries) == 0
	return err
}

// takeRecord takes the next entry, and reports whether its record is one of the query. An unreadable entry of a later
// version is shown with its cause alone.
func (r *reader) takeRecord(q Query) (Record, bool) {
	entry := r.entries[0]
	r.entries, r.before = r.entries[1:], entry.ID
	var record Record
	if err := json.Unmarshal([]byte(entry.Text), &record); err != nil {
		record = Record{Cause: fmt.Sprintf("this version cannot read the record: %v", err)}
	}
	record.ID = string(r.stream[:2]) + entry.ID
	return record, q.selects(&record)
}

func (q Query) selects(r *Record) bool {
	return (q.Result == "" || q.Result == r.Result) &&
		(strings.Contains(r.By, q.By) || strings.Contains(r.From, q.By)) &&
		strings.Contains(string(r.Action), q.Action)
}

// newer compares the ids of entries.
func newer(a, b string) bool {
	aTime, aNumber := parts(a)
	bTime, bNumber := parts(b)
	return aTime > bTime || aTime == bTime && aNumber > bNumber
}

func parts(id string) (milliseconds, number uint64) {
	left, right, _ := strings.Cut(id, "-")
	milliseconds, _ = strconv.ParseUint(left, 10, 64)
	number, _ = strconv.ParseUint(right, 10, 64)
	return milliseconds, number
}
