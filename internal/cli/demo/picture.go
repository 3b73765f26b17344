package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/demo/ledger"
	"github.com/msghandler/msghandler/internal/demo/orders"
)

// stream makes orders as they are read.
type stream struct {
	total, next int
	rest        []byte
}

func newStream(total int) *stream { return &stream{total: total} }

// Read gives the orders as JSON lines: of ten, the fourth is rolled back and the eighth is never submitted.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.next == s.total {
			return 0, io.EOF
		}
		order := orders.Order{ID: fmt.Sprintf("%d", 1001+s.next), AmountCents: int64(100 + s.next)}
		switch s.next % 10 {
		case 3:
			order.Fail = orders.Rollback
		case 7:
			order.Fail = orders.Silent
		}
		s.next++
		line, err := json.Marshal(order)
		if err != nil {
			return 0, err
		}
		line = append(line, '\n')
		s.rest = line
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// picture shows how the demo stands, while it runs.
type picture struct {
	stage *stage
	end   chan struct{}
	ended sync.WaitGroup

	mu    sync.Mutex
	drawn int // lines of the live table that stand on the terminal
}

func newPicture(s *stage) *picture {
	p := &picture{stage: s, end: make(chan struct{})}
	interval := time.Second
	if s.Live {
		interval = 100 * time.Millisecond
	}
	p.ended.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				p.draw()
			case <-p.end:
				p.draw()
				return
			}
		}
	})
	return p
}

// say adds a line that stays.
func (p *picture) say(what string) {
	p.mu.Lock()
	p.erase()
	fmt.Fprintf(p.stage.Out, "%5.1fs  %s\n", time.Since(p.stage.begun).Seconds(), what)
	p.mu.Unlock()
	if p.stage.Live {
		p.draw()
	}
}

func (p *picture) draw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stage
	committed, paid := s.orders.Committed(), s.payments.Paid()
	if !s.Live {
		fmt.Fprintf(s.Out, "%5.1fs  orders: %v; %d committed, %d paid, %d markers left\n",
			time.Since(s.begun).Seconds(), &s.tally, committed, paid, s.orders.Open())
		return
	}
	p.erase()
	rows := []string{
		bar("committed", committed, s.Orders),
		bar("paid", paid, s.Orders),
		bar("rolled back", int(s.tally.RolledBack.Load()), s.Orders),
		bar("markers left", s.orders.Open(), s.Orders),
	}
	fmt.Fprintf(s.Out, "%s\n", strings.Join(rows, "\n"))
	p.drawn = len(rows)
}

// erase takes the live table off the terminal.
func (p *picture) erase() {
	if p.drawn > 0 {
		fmt.Fprintf(p.stage.Out, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

func bar(name string, n, total int) string {
	const width = 50
	filled := min(width, n*width/max(total, 1))
	return fmt.Sprintf("  %-12s %s%s %6d", name, strings.Repeat("█", filled), strings.Repeat("·", width-filled), n)
}

func (p *picture) stop() {
	close(p.end)
	p.ended.Wait()
}

// dropped is an order that came again.
type dropped struct {
	ID          string `json:"id"`
	Attempt     int    `json:"attempt"`
	Redelivered bool   `json:"redelivered"`
}

func (d dropped) flagged() bool { return d.Attempt > 1 || d.Redelivered }

func readCopies(path string) ([]dropped, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the list of copies: %w", err)
	}
	defer file.Close()
	var copies []dropped
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var d dropped
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return nil, fmt.Errorf("read the list of copies: %w", err)
		}
		copies = append(copies, d)
	}
	return copies, lines.Err()
}

// writeBooks shows the books, and returns an error unless they balance.
func (s *stage) writeBooks(books ledger.Books, copies []dropped) error {
	unflagged := 0
	for _, c := range copies {
		if !c.flagged() {
			unflagged++
		}
	}
	fmt.Fprintf(s.Out, `
The books, after %.1f s and %d kill -9 of the coordinator:
  orders placed            %6d
  committed                %6d   of which one in nine was never submitted
  rolled back              %6d
  paid                     %6d
  committed and not paid   %6d
  paid and not committed   %6d
  copies dropped           %6d   %s
`, time.Since(s.begun).Seconds(), s.coordinator.kills, s.Orders, books.Orders, s.tally.RolledBack.Load(), books.Payments,
		len(books.Unpaid), len(books.Unordered), len(copies), nameCopies(copies))
	switch {
	case !books.Balanced():
		return fmt.Errorf("%w: unpaid %v, paid but never ordered %v, wrong amount %v",
			ErrUnbalanced, books.Unpaid, books.Unordered, books.Wrong)
	case unflagged > 0:
		return fmt.Errorf("%w: %d copies do not say that they are copies", ErrUnbalanced, unflagged)
	case s.tally.Failed.Load() > 0:
		return errors.New("some orders could not be placed")
	}
	fmt.Fprintln(s.Out, "\nThe books balance: what committed was delivered, what rolled back was not.")
	return nil
}

// nameCopies names the orders that came again.
func nameCopies(copies []dropped) string {
	if len(copies) == 0 {
		return "(a fault may make some; each would say so)"
	}
	const most = 8
	var names []string
	for _, c := range copies[:min(len(copies), most)] {
		names = append(names, fmt.Sprintf("%s (attempt %d)", c.ID, c.Attempt))
	}
	if len(copies) > most {
		names = append(names, "...")
	}
	return "each says so: " + strings.Join(names, ", ")
}
