package story

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/msghandler/msghandler/dev/demo/books"
	"github.com/msghandler/msghandler/dev/demo/orders"
	"github.com/msghandler/msghandler/dev/demo/shop"
)

// stream makes orders as they are read.
type stream struct {
	total, next int
	rest        []byte
}

func newStream(total int) *stream { return &stream{total: total} }

// Read gives the orders as JSON lines.
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

// customer returns the order of the n-th buyer. Of ten buyers, the payment of the fourth is declined, the sixth never
// pays, the payment of the eighth is never submitted, and the tenth wants the product of the ninth. The second of every
// other ten cancels.
func customer(n int) orders.Order {
	order := orders.Order{ID: int64(1001 + n), Buyer: int64(1 + n%90), Product: int64(1 + n)}
	switch n % 10 {
	case 1:
		order.Cancel = n%20 == 1
	case 3:
		order.Fail = orders.Declined
	case 5:
		order.Unpaid = true
	case 7:
		order.Fail = orders.Silent
	case 9:
		order.Product--
	}
	return order
}

// say adds a line to the story.
func (s *stage) say(what string) {
	fmt.Fprintf(s.Out, "%5.1fs  %s\n", time.Since(s.begun).Seconds(), what)
}

// show adds a line of the progress, once a second.
func (s *stage) show(now progress) {
	if time.Since(s.shown) < time.Second {
		return
	}
	s.shown = time.Now()
	s.say(fmt.Sprintf("%4d placed, %3d too late; %4d paid, %4d shipped, %4d completed; %4d pending, %3d cancelled; "+
		"%2d dead letters", now.Placed(), s.tally.TooLate.Load(), now.Paid+now.Shipped+now.Completed,
		now.effects.Shipments, now.Completed, now.Pending, now.Cancelled, now.dead))
}

// writeBooks shows the books, and returns an error unless they balance.
func (s *stage) writeBooks(b books.Books) error {
	fmt.Fprintf(s.Out, `
The books, read from the shop's database after %.1f s and %d kill -9 of the coordinator:
  orders                                            products
    buyers              %7d                         on sale at first    %7d
    too late            %7d   sold, rolled back     on sale now         %7d
    orders placed       %7d                         sold                %7d
    of these completed  %7d   paid and shipped
             timed out  %7d   not paid within %v
             cancelled  %7d   by their buyers
             unfinished %7d
  events                  announced  handled
`, time.Since(s.begun).Seconds(), s.coordinator.kills, s.Orders, b.Products, s.tally.TooLate.Load(), b.OnSale, b.Placed,
		b.Sold, b.Completed, b.ByTimeout, payWithin, b.ByBuyer, b.Pending+b.Paid+b.Shipped)
	for _, e := range b.Events {
		fmt.Fprintf(s.Out, "    %-22s  %7d  %7d   %s\n", e.Type, e.Announced, e.Handled, e.Queue)
	}
	fmt.Fprintf(s.Out, "  dead letters: %d replayed, %d left\n", s.replayed, len(s.left))
	for _, letter := range s.left {
		fmt.Fprintf(s.Out, "    %s\n", letter)
	}
	fmt.Fprintf(s.Out, "  copies dropped: %d   %s\n\n", len(b.Copies), nameCopies(b.Copies))
	for _, c := range b.Copies {
		if !c.Flagged() {
			b.Wrong = append(b.Wrong, fmt.Sprintf("a copy of %s does not say that it is one", c.Event))
		}
	}
	if dead := s.broker.Depth(shop.DeadLetterQueue); dead != len(s.left) {
		b.Wrong = append(b.Wrong, fmt.Sprintf("%d dead letters stand in the queue", dead))
	}
	switch {
	case len(b.Wrong) > 0:
		const most = 5
		first := strings.Join(b.Wrong[:min(len(b.Wrong), most)], "; ")
		return fmt.Errorf("%w in %d places: %s", errUnbalanced, len(b.Wrong), first)
	case s.failure.Load() != nil:
		return *s.failure.Load()
	}
	fmt.Fprintln(s.Out, "The books balance: each product is on sale or belongs to one order, every paid order was "+
		"shipped once,\nevery event was handled once, and only the event of an unknown type is a dead letter.")
	return nil
}

// nameCopies names the events that were redelivered.
func nameCopies(copies []books.Copy) string {
	if len(copies) == 0 {
		return "(a fault may make some; each would say so)"
	}
	const most = 4
	var names []string
	for _, c := range copies[:min(len(copies), most)] {
		names = append(names, fmt.Sprintf("%s (attempt %d)", c.Event, c.Attempt))
	}
	if len(copies) > most {
		names = append(names, "...")
	}
	return "each says so: " + strings.Join(names, ", ")
}
