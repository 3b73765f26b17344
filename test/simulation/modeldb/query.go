package modeldb

import (
	"context"
	"slices"
	"time"
)

// execution is one statement on its way, in its transaction.
type execution struct {
	ctx     context.Context //nolint:containedctx // an execution lives as long as its call
	server  *Server
	session *session
	tx      *transaction
	args    []any
	// began is the time of the statement.
	began time.Time
}

// result is what a statement returns.
type result struct {
	columns  []string
	rows     [][]any
	affected int64
}

// column is a name with a value: of a result, of a SET, or a CHECK with its condition.
type column struct {
	name  string
	value expression
}

type order struct {
	by         expression
	descending bool
}

// query is a SELECT from one table, from another query, or from nothing.
type query struct {
	items     []column
	table     string
	inner     *query
	where     expression
	group     []expression
	aggregate bool
	order     []order
	limit     expression
	// locks: FOR UPDATE; skips: SKIP LOCKED.
	locks, skips bool
	union        *query
}

// candidate is a row that a statement has found; slot is nil for a row that is in no table.
type candidate struct {
	slot *slot
	row  []any
}

func (q *query) execute(x *execution) (*result, error) {
	s := &scope{run: x}
	found, err := q.source(x, s)
	if err == nil {
		found, err = filtered(s, found, q.where)
	}
	if err == nil {
		err = q.sort(s, found)
	}
	if err == nil {
		found, err = q.limited(x, s, found)
	}
	if err != nil {
		return nil, err
	}
	r := q.project(s, found)
	if s.err != nil {
		return nil, s.err
	}
	if q.union != nil {
		further, err := q.union.execute(x)
		if err != nil {
			return nil, err
		}
		r.rows = append(r.rows, further.rows...)
	}
	r.affected = int64(len(r.rows))
	return r, nil
}

// source returns the rows of FROM, and puts their columns into the scope.
func (q *query) source(x *execution, s *scope) ([]candidate, error) {
	switch {
	case q.inner != nil:
		r, err := q.inner.execute(x)
		if err != nil {
			return nil, err
		}
		s.names = r.columns
		return rowsOf(r.rows), nil
	case q.table == "":
		return rowsOf([][]any{{}}), nil
	case q.table == "pg_class":
		s.names = []string{"oid"}
		return rowsOf(x.server.catalog(func(t *table) []any { return []any{t.name} })), nil
	case q.table == "pg_index":
		s.names = []string{"indrelid", "indisprimary"}
		return rowsOf(x.server.catalog(func(t *table) []any { return []any{t.name, len(t.key) > 0} })), nil
	}
	return x.scan(q.table, s)
}

func rowsOf(rows [][]any) []candidate {
	found := make([]candidate, len(rows))
	for i, row := range rows {
		found[i].row = row
	}
	return found
}

// scan returns the rows of a table that the transaction sees, which are those committed by now, and its own.
func (x *execution) scan(name string, s *scope) (found []candidate, err error) {
	t := x.server.tables[name]
	if t == nil {
		return nil, errorf(stateNoTable, "relation %q does not exist", name)
	}
	s.names = t.scopeNames()
	for _, o := range t.order {
		if row := o.version(x.tx); row != nil {
			found = append(found, candidate{o, row})
		}
	}
	return found, nil
}

func filtered(s *scope, all []candidate, where expression) (found []candidate, err error) {
	for _, c := range all {
		s.row = c.row
		if s.truth(where) {
			found = append(found, c)
		}
	}
	return found, s.err
}

func (q *query) sort(s *scope, found []candidate) error {
	slices.SortStableFunc(found, func(a, b candidate) int {
		for _, o := range q.order {
			s.row = a.row
			x := o.by(s)
			s.row = b.row
			before := compareForOrder(x, o.by(s))
			if o.descending {
				before = -before
			}
			if before != 0 {
				return before
			}
		}
		return 0
	})
	return s.err
}

// compareForOrder puts NULL last.
func compareForOrder(x, y any) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	}
	before, _ := compare(x, y)
	return before
}

// limited returns the first rows up to the limit, and locks them where the query asks for locks: rows that are skipped
// do not count.
func (q *query) limited(x *execution, s *scope, all []candidate) (found []candidate, err error) {
	limit := int64(len(all))
	if q.limit != nil {
		limit, _ = q.limit(s).(int64)
	}
	for _, c := range all {
		if int64(len(found)) >= limit {
			break
		}
		if q.locks && c.slot != nil {
			c.row, err = x.lockCurrent(s, c, q.where, q.skips)
			if err != nil {
				return nil, err
			}
		}
		if c.row != nil {
			found = append(found, c)
		}
	}
	return found, s.err
}

// lockCurrent locks the slot of a row and returns its row by now; nil, if another transaction has removed the row
// meanwhile or has made it one that the condition does not hold for.
func (x *execution) lockCurrent(s *scope, c candidate, where expression, skips bool) ([]any, error) {
	had := c.slot.holder == x.tx
	locked, err := x.lock(c.slot, skips)
	if err != nil || !locked {
		return nil, err
	}
	now := c.slot.version(x.tx)
	if now != nil && &now[0] != &c.row[0] {
		s.row = now
		if !s.truth(where) {
			now = nil
		}
	}
	if now == nil && !had {
		x.tx.unlock(c.slot)
	}
	return now, s.err
}

func (q *query) project(s *scope, found []candidate) *result {
	r := &result{}
	for _, item := range q.items {
		r.columns = append(r.columns, item.name)
	}
	row := func() {
		values := make([]any, len(q.items))
		for i, item := range q.items {
			values[i] = item.value(s)
		}
		r.rows = append(r.rows, values)
	}
	if !q.aggregate {
		for _, c := range found {
			s.row = c.row
			row()
		}
		return r
	}
	for _, group := range q.groups(s, found) {
		if s.group, s.row = group, nil; len(group) > 0 {
			s.row = group[0]
		}
		row()
	}
	return r
}

// groups divides rows; without GROUP BY all rows are one group, also if there is none.
func (q *query) groups(s *scope, found []candidate) (groups [][][]any) {
	places := map[string]int{}
	if q.group == nil {
		places[""], groups = 0, [][][]any{nil}
	}
	for _, c := range found {
		s.row = c.row
		values := make([]any, len(q.group))
		columns := make([]int, len(q.group))
		for i, e := range q.group {
			values[i], columns[i] = e(s), i
		}
		key := keyOf(values, columns)
		at, known := places[key]
		if !known {
			at = len(groups)
			places[key], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], c.row)
	}
	return groups
}
