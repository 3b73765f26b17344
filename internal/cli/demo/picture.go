package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/demo/books"
	"github.com/msghandler/msghandler/internal/demo/orders"
)

// stream makes orders as they are read.
type stream struct {
	total, next int
	rest        []byte
}

func newStream(total int) *stream { return &stream{total: total} }

// Read gives the orders as JSON lines. Of ten, the payment of the fourth is declined, the sixth is never paid, and the
// payment of the eighth is never submitted. The tenth of every other ten wants one of the few teapots.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.next == s.total {
			return 0, io.EOF
		}
		line, err := json.Marshal(customer(s.next))
		if err != nil {
			return 0, err
		}
		s.next++
		line = append(line, '\n')
		s.rest = line
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// customer returns the order of the n-th customer.
func customer(n int) orders.Order {
	order := orders.Order{ID: fmt.Sprint(1001 + n), Items: []orders.Item{{SKU: "tea", Quantity: int64(1 + n%3)}}}
	if n%2 == 0 {
		order.Items = append(order.Items, orders.Item{SKU: "cup", Quantity: 2})
	}
	switch n % 10 {
	case 3:
		order.Fail = orders.Declined
	case 5:
		order.Unpaid = true
	case 7:
		order.Fail = orders.Silent
	case 9:
		if n%20 == 9 {
			order.Items = append(order.Items, orders.Item{SKU: "teapot", Quantity: 1})
		}
	}
	return order
}

// picture shows how the demo stands, while it runs.
type picture struct {
	stage *stage
	last  progress
	shown time.Time
	drawn int // lines of the live table that stand on the terminal
}

// say adds a line that stays.
func (p *picture) say(what string) {
	p.erase()
	fmt.Fprintf(p.stage.Out, "%5.1fs  %s\n", time.Since(p.stage.begun).Seconds(), what)
	if p.stage.Live {
		p.draw()
	}
}

// show draws the progress, unless the last drawing is recent.
func (p *picture) show(now progress) {
	p.last = now
	interval := time.Second
	if p.stage.Live {
		interval = 100 * time.Millisecond
	}
	if time.Since(p.shown) >= interval {
		p.draw()
	}
}

func (p *picture) draw() {
	p.shown = time.Now()
	s, now := p.stage, p.last
	placed := now.Unpaid + now.Paid + now.Cancelled
	if !s.Live {
		fmt.Fprintf(s.Out, "%5.1fs  %4d placed, %3d out of stock; %4d paid, %4d shipped, %4d unpaid, %4d cancelled\n",
			time.Since(s.begun).Seconds(), placed, s.tally.OutOfStock.Load(), now.Paid, now.payments.Shipped, now.Unpaid,
			now.Cancelled)
		return
	}
	p.erase()
	rows := []string{
		bar("placed", placed, s.Orders),
		bar("out of stock", int(s.tally.OutOfStock.Load()), s.Orders),
		bar("paid", now.Paid, s.Orders),
		bar("shipped", now.payments.Shipped, s.Orders),
		bar("unpaid", now.Unpaid, s.Orders),
		bar("cancelled", now.Cancelled, s.Orders),
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

// writeBooks shows the books, and returns an error unless they balance.
func (s *stage) writeBooks(b books.Books) error {
	fmt.Fprintf(s.Out, `
The books, read from both databases after %.1f s and %d kill -9 of the coordinator:
  the order service                             the payment service
    customers           %7d                     orders booked       %7d
    out of stock        %7d   rolled back       orders shipped      %7d
    orders placed       %7d                     money booked        %10.2f
    of these paid       %7d                     copies dropped      %7d   %s
             cancelled  %7d   not paid within %v
             unpaid     %7d
  the stock: %d pieces at first = %d on the shelves + %d shipped

`, time.Since(s.begun).Seconds(), s.coordinator.kills, s.Orders, b.Booked, s.tally.OutOfStock.Load(), b.Booked,
		b.Placed, float64(b.BookedCents)/100, b.Paid, len(b.Copies), nameCopies(b.Copies), b.Cancelled, payWithin, b.Unpaid,
		b.Stocked, b.Left, b.Shipped)
	for _, c := range b.Copies {
		if !c.Flagged() {
			b.Wrong = append(b.Wrong, fmt.Sprintf("a copy of order %s does not say that it is one", c.ID))
		}
	}
	switch {
	case len(b.Wrong) > 0:
		const most = 5
		first := strings.Join(b.Wrong[:min(len(b.Wrong), most)], "; ")
		return fmt.Errorf("%w in %d places: %s", errUnbalanced, len(b.Wrong), first)
	case s.failure.Load() != nil:
		return *s.failure.Load()
	}
	fmt.Fprintln(s.Out,
		"The books balance: every paid order was booked and shipped once, no other order was, and no piece is missing.")
	return nil
}

// nameCopies names the orders that were redelivered.
func nameCopies(copies []books.Copy) string {
	if len(copies) == 0 {
		return "(a fault may make some; each would say so)"
	}
	const most = 4
	var names []string
	for _, c := range copies[:min(len(copies), most)] {
		names = append(names, fmt.Sprintf("%s (attempt %d)", c.ID, c.Attempt))
	}
	if len(copies) > most {
		names = append(names, "...")
	}
	return "each says so: " + strings.Join(names, ", ")
}
