package server

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/submit"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxChange bounds the messages that a call with a filter changes, and the messages looked at.
	maxChange = 10_000
	// changePage is how many messages are changed at a time.
	changePage = 500
)

// bulk changes many messages in one call: those that the request names, or all that match its filter, a page at a time.
// T names a message and what is done with the message.
type bulk[T any] struct {
	server *Server
	call   string
	action audit.Action
	reason string
	// filter describes what selects the messages; empty where the request names them.
	filter string
	// dry says that do only predicts the change.
	dry bool
	// name is the name of a message after the change.
	name func(T) halfmsg.Name
	// do makes the change.
	do func(ctx context.Context, of []T) []halfmsg.Result
	// due is the state whose loop goes on with a changed message; None: no loop does.
	due func(changed halfmsg.Result) halfmsg.State

	// changed counts the changed messages, and unchanged those that no later call can change either.
	changed, unchanged int64
}

// bulkPage is a page of messages that match a filter.
type bulkPage[T any] struct {
	messages []T
	// next is the cursor of the next page; empty on the last page.
	next string
	// looked is how many messages the store looked at.
	looked int
}

// named changes the named messages. A result with an error is of a name that is not valid.
func (b *bulk[T]) named(ctx context.Context, of []T, results []halfmsg.Result) ([]*msghandlerv1.Outcome, error) {
	var valid []int
	for i := range of {
		if results[i].Err == nil {
			valid = append(valid, i)
		}
	}
	submit.InOrder(valid, func(i int) halfmsg.Name { return b.name(of[i]) }, results,
		func(places []int) []halfmsg.Result {
			part := make([]T, len(places))
			for k, i := range places {
				part[k] = of[i]
			}
			return b.apply(ctx, part)
		})
	if err := halted(results); err != nil {
		return nil, err
	}
	return b.server.outcomes(ctx, b.call, results), nil
}

// search says how messages that match a filter are found.
type search[T any] struct {
	// cursor is where the first page begins, and limit how many messages are changed at most.
	cursor string
	limit  int
	// within bounds the time of the call, beside the number of messages looked at; 0: the number alone does.
	within time.Duration
	list   func(ctx context.Context, cursor string, limit, scan int) (bulkPage[T], error)
}

// matching changes the messages that match, and returns the cursor of messages not looked at; empty without such
// messages. When the store fails later, changed messages stay changed. The caller then learns their number, and that
// more messages follow from the failed page on.
func (b *bulk[T]) matching(ctx context.Context, s search[T]) (next string, err error) {
	began, scan := time.Now(), maxChange
	for next = s.cursor; int(b.changed) < s.limit && scan > 0; {
		page, failure := s.list(ctx, next, min(s.limit-int(b.changed), changePage), min(scan, maxScan))
		if failure == nil {
			failure = retriable(b.apply(ctx, page.messages))
		}
		if failure != nil && (b.changed == 0 || next == "") {
			return "", failure // No cursor leads to the first page.
		}
		if failure != nil {
			b.server.faults.note(ctx, b.call, failure)
			return next, nil
		}
		scan -= page.looked
		if next = page.next; next == "" || s.within > 0 && time.Since(began) > s.within {
			break
		}
	}
	return next, nil
}

// retriable is the error of messages that may be changed later; nil where there are none.
func retriable(results []halfmsg.Result) error {
	for _, r := range results {
		if r.Err != nil && faultOf(r.Err).retry {
			return r.Err
		}
	}
	return nil
}

// apply changes messages, wakes the loops that go on with them, and records the change.
func (b *bulk[T]) apply(ctx context.Context, of []T) (results []halfmsg.Result) {
	if len(of) == 0 {
		return nil
	}
	if b.dry {
		ctx, cancel := b.server.withStoreTimeout(ctx)
		defer cancel()
		results = b.do(ctx, of)
	} else {
		results = submit.Detached(ctx, storeTimeout, len(of), func(ctx context.Context) []halfmsg.Result {
			return b.do(ctx, of)
		})
	}
	for _, r := range results {
		switch {
		case r.Err == nil:
			b.changed++
		case !faultOf(r.Err).retry:
			b.unchanged++
		}
	}
	if !b.dry {
		b.report(ctx, of, results)
	}
	return results
}

// report tells those who watch moves, the loops and the audit trail of a change.
func (b *bulk[T]) report(ctx context.Context, of []T, results []halfmsg.Result) {
	if b.server.tails.Observing() {
		b.server.tails.Moved(submit.Moves(results, func(i int) halfmsg.Name { return b.name(of[i]) }))
	}
	names := make([]halfmsg.Name, len(of))
	for i := range of {
		names[i] = b.name(of[i])
	}
	b.server.recordChange(ctx, audit.Record{Action: b.action, Filter: b.filter, Reason: b.reason}, names, results)
	woken := map[halfmsg.State]bool{halfmsg.None: true}
	for _, r := range results {
		if r.Err != nil {
			continue
		}
		if state := b.due(r); !woken[state] {
			woken[state] = true
			b.server.config.Pipeline.Due(state)
		}
	}
}
