// Package ledger is the demos' database: an append-only file of JSON lines in which each id stands at most once.
//
// It stands in for the SQL table that a real service has. One write is one line, so it is committed whole or, when the
// process dies half way, cut off at the next Open. It does not sync to disk: it survives the death of its process, not
// of its machine.
package ledger

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Entry is one line: an order that was committed, or a payment that was taken.
type Entry struct {
	ID          string    `json:"id"`
	AmountCents int64     `json:"amount_cents"`
	At          time.Time `json:"at"`
}

// ErrExists says that the ledger has the id already; nothing was written.
var ErrExists = errors.New("the ledger has that id already")

// Ledger is open for appending. It is safe for concurrent use.
type Ledger struct {
	mu      sync.RWMutex
	file    *os.File
	entries map[string]Entry
}

// Open opens or makes the ledger at path, and drops a last line that a dying process left unfinished.
func Open(path string) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	entries, size, err := load(file)
	if err == nil {
		err = file.Truncate(size)
	}
	if err == nil {
		_, err = file.Seek(size, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read ledger %s: %w", path, err), file.Close())
	}
	return &Ledger{file: file, entries: entries}, nil
}

// Read returns what the ledger at path holds, without opening it for writing.
func Read(path string) (map[string]Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	defer file.Close()
	entries, _, err := load(file)
	if err != nil {
		return nil, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return entries, nil
}

// load reads whole lines and says how many bytes they take.
func load(r io.Reader) (map[string]Entry, int64, error) {
	entries := map[string]Entry{}
	var size int64
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return entries, size, nil
		}
		if err != nil {
			return nil, 0, err
		}
		var e Entry
		if err := json.Unmarshal(bytes.TrimSpace(line), &e); err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		entries[e.ID] = e
		size += int64(len(line))
	}
}

// Append commits one entry, or returns ErrExists.
func (l *Ledger) Append(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode ledger entry: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, exists := l.entries[e.ID]; exists {
		return ErrExists
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write ledger: %w", err)
	}
	l.entries[e.ID] = e
	return nil
}

// Has says whether the ledger holds the id.
func (l *Ledger) Has(id string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, has := l.entries[id]
	return has
}

// Len is how many entries the ledger holds.
func (l *Ledger) Len() int {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.entries)
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// Books is what comes of holding a ledger of orders against one of payments.
type Books struct {
	Orders, Payments int
	// Unpaid are committed orders without a payment.
	Unpaid []string
	// Unordered are payments for orders that were never committed.
	Unordered []string
	// Wrong are payments over another amount than the order's.
	Wrong []string
}

// Balance compares committed orders with payments.
func Balance(orders, payments map[string]Entry) Books {
	books := Books{Orders: len(orders), Payments: len(payments)}
	for id, order := range orders {
		payment, paid := payments[id]
		switch {
		case !paid:
			books.Unpaid = append(books.Unpaid, id)
		case payment.AmountCents != order.AmountCents:
			books.Wrong = append(books.Wrong, id)
		}
	}
	for id := range payments {
		if _, ordered := orders[id]; !ordered {
			books.Unordered = append(books.Unordered, id)
		}
	}
	return books
}

// Balanced says whether every committed order is paid, with its own amount, and nothing else is.
func (b Books) Balanced() bool { return len(b.Unpaid)+len(b.Unordered)+len(b.Wrong) == 0 }
