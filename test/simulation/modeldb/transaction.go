package modeldb

import (
	"context"
	"slices"
	"time"
)

// circleAfter is deadlock_timeout: after how long a waiting transaction looks whether it waits for itself.
const circleAfter = time.Second

// table is a table with its committed and its uncommitted rows. The arrays have an element for each column.
type table struct {
	name     string
	names    []string
	kinds    []string
	required []bool
	usual    []expression
	key      []int
	checks   []column
	rows     map[string]*slot
	// order are the slots in the order in which they came.
	order []*slot
	last  int64
}

// slot is the place of a key: its committed row, and the row of the transaction that holds the slot.
type slot struct {
	table *table
	key   string
	// number is the ctid.
	number    int64
	committed []any
	// holder has locked the slot. Where written is set, pending is its row; nil: removed.
	holder  *transaction
	written bool
	pending []any
	queue   []*waiter
}

type waiter struct {
	of      *transaction
	granted chan struct{}
}

// transaction is a transaction of a session.
type transaction struct {
	held []*slot
	// patience is lock_timeout; 0: waits do not end.
	patience time.Duration
	readOnly bool
	// failed: an error has ended all but the ROLLBACK.
	failed  bool
	waiting *slot
}

// add makes a slot without a row.
func (t *table) add(key string) *slot {
	t.last++
	s := &slot{table: t, key: key, number: t.last}
	t.rows[key] = s
	t.order = append(t.order, s)
	return s
}

// drop forgets a slot without row, holder and waiters.
func (t *table) drop(s *slot) {
	if s.committed != nil || s.holder != nil || len(s.queue) > 0 || t.rows[s.key] != s {
		return
	}
	delete(t.rows, s.key)
	i, _ := slices.BinarySearchFunc(t.order, s.number, func(o *slot, n int64) int { return int(o.number - n) })
	t.order = slices.Delete(t.order, i, i+1)
}

// version is the row that a transaction sees; nil: none.
func (s *slot) version(tx *transaction) []any {
	if s.holder == tx && s.written {
		return s.pending
	}
	return s.committed
}

// write puts a row into a slot that the transaction holds; nil removes it.
func (s *slot) write(row []any) { s.written, s.pending = true, row }

func (s *slot) give(to *transaction) {
	s.holder = to
	to.held = append(to.held, s)
}

// release ends the lock, and gives the slot to the first of those that wait.
func (s *slot) release() {
	s.holder, s.written, s.pending = nil, false, nil
	if len(s.queue) > 0 {
		first := s.queue[0]
		s.queue = s.queue[1:]
		s.give(first.of)
		close(first.granted)
		return
	}
	s.table.drop(s)
}

// unlock gives back a slot that the transaction took last and has not written.
func (tx *transaction) unlock(s *slot) {
	if i := slices.Index(tx.held, s); i >= 0 {
		tx.held = slices.Delete(tx.held, i, i+1)
		s.release()
	}
}

// lock takes the slot for the transaction, and waits for its holder, or skips it. The caller has the server's mutex,
// which is free during the wait.
func (x *execution) lock(s *slot, skips bool) (locked bool, err error) {
	switch {
	case s.holder == x.tx:
		return true, nil
	case s.holder == nil:
		s.give(x.tx)
		return true, nil
	case skips:
		return false, nil
	}
	return true, x.await(s)
}

// await waits until the slot is the transaction's.
func (x *execution) await(s *slot) error {
	w := &waiter{x.tx, make(chan struct{})}
	s.queue = append(s.queue, w)
	x.tx.waiting = s
	defer func() {
		x.tx.waiting = nil
		s.queue = slices.DeleteFunc(s.queue, func(o *waiter) bool { return o == w })
	}()
	circle := time.NewTimer(circleAfter)
	defer circle.Stop()
	var limit <-chan time.Time
	if x.tx.patience > 0 {
		timer := time.NewTimer(x.tx.patience)
		defer timer.Stop()
		limit = timer.C
	}
	for {
		err := x.pause(w.granted, circle.C, limit)
		select {
		case <-w.granted: // perhaps beside another reason
			return nil
		default:
		}
		if err != nil || x.tx.inCircle() {
			if err == nil {
				err = serverError(stateDeadlock)
			}
			return err
		}
	}
}

// pause waits without the mutex, and says why the wait must end.
func (x *execution) pause(granted <-chan struct{}, circle, limit <-chan time.Time) error {
	x.server.mu.Unlock()
	defer x.server.mu.Lock()
	select {
	case <-granted:
	case <-circle:
	case <-limit:
		return serverError(stateLockTimeout)
	case <-x.session.killed:
		return serverError(stateShutdown)
	case <-x.ctx.Done():
		return context.Cause(x.ctx)
	}
	return nil
}

// inCircle reports whether the transaction waits for itself.
func (tx *transaction) inCircle() bool {
	seen := map[*transaction]bool{}
	for at := tx; at.waiting != nil && !seen[at]; at = at.waiting.holder {
		seen[at] = true
		if at.waiting.holder == nil {
			return false
		}
		if at.waiting.holder == tx {
			return true
		}
	}
	return false
}
