package modeldb

import (
	"fmt"
	"slices"
	"time"
)

// insertion is INSERT, of VALUES or from a query.
type insertion struct {
	table    string
	columns  []string
	values   [][]expression
	from     *query
	keepsOld bool
}

func (i *insertion) execute(x *execution) (*result, error) {
	t, err := x.writable(i.table)
	if err != nil {
		return nil, err
	}
	rows, err := i.rows(x)
	if err != nil {
		return nil, err
	}
	r := &result{}
	for _, values := range rows {
		row, err := t.complete(x, i.columns, values)
		if err != nil {
			return nil, err
		}
		inserted, err := x.insert(t, row)
		switch {
		case err != nil:
			return nil, err
		case inserted:
			r.affected++
		case !i.keepsOld:
			return nil, errorf(stateUnique, "duplicate key value violates unique constraint %q", t.name+"_pkey")
		}
	}
	return r, nil
}

func (i *insertion) rows(x *execution) (rows [][]any, err error) {
	if i.from != nil {
		r, err := i.from.execute(x)
		if err != nil {
			return nil, err
		}
		return r.rows, nil
	}
	s := &scope{run: x}
	for _, expressions := range i.values {
		row := make([]any, len(expressions))
		for n, e := range expressions {
			row[n] = e(s)
		}
		rows = append(rows, row)
	}
	return rows, s.err
}

// writable returns a table for a statement that writes.
func (x *execution) writable(name string) (*table, error) {
	t := x.server.tables[name]
	switch {
	case t == nil:
		return nil, errorf(stateNoTable, "relation %q does not exist", name)
	case x.tx.readOnly || x.server.readOnly:
		return nil, serverError(stateReadOnly)
	}
	return t, nil
}

// complete makes a row of a table from some of its columns.
func (t *table) complete(x *execution, columns []string, values []any) ([]any, error) {
	row := make([]any, len(t.names)+1)
	s := &scope{run: x}
	for i, name := range t.names {
		if at := slices.Index(columns, name); at >= 0 {
			if at >= len(values) {
				return nil, errorf(stateSyntax, "INSERT has more target columns than expressions")
			}
			row[i] = values[at]
		} else if t.usual[i] != nil {
			row[i] = t.usual[i](s)
		}
	}
	for _, name := range columns {
		if !slices.Contains(t.names, name) {
			return nil, errorf(stateNoColumn, "column %q of relation %q does not exist", name, t.name)
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	return row, t.examine(x, row)
}

// examine gives the values of a row the types of their columns, and checks the table's constraints.
func (t *table) examine(x *execution, row []any) (err error) {
	for i, name := range t.names {
		if row[i], err = cast(row[i], t.kinds[i]); err != nil {
			return err
		}
		if row[i] == nil && t.required[i] {
			return errorf(stateNull, "null value in column %q of relation %q violates not-null constraint", name, t.name)
		}
	}
	s := &scope{run: x, names: t.scopeNames(), row: row}
	for _, check := range t.checks {
		if check.value(s) == false {
			return errorf(stateCheck, "new row for relation %q violates check constraint %q", t.name, check.name)
		}
	}
	return s.err
}

// scopeNames are the columns of a row: those of the table, and the place of the row.
func (t *table) scopeNames() []string { return append(slices.Clip(t.names), "ctid") }

// insert writes a row, unless its key has one. insert waits for a transaction that has written the key.
func (x *execution) insert(t *table, row []any) (inserted bool, err error) {
	key := keyOf(row, t.key)
	if t.key == nil {
		key = fmt.Sprint("row ", t.last+1)
	}
	s := t.rows[key]
	if s == nil {
		s = t.add(key)
	}
	waited := false
	if s.holder != nil && s.holder != x.tx && s.written {
		if err := x.await(s); err != nil {
			return false, err
		}
		waited = true
	}
	if s.version(x.tx) != nil {
		if waited {
			x.tx.unlock(s)
		}
		return false, nil
	}
	if s.holder == nil {
		s.give(x.tx)
	}
	row[len(row)-1] = s.number
	s.write(row)
	return true, nil
}

// update is UPDATE of one table.
type update struct {
	table string
	set   []column
	where expression
}

func (u *update) execute(x *execution) (*result, error) {
	return x.change(u.table, u.where, func(s *scope, t *table, old []any) ([]any, error) {
		row := slices.Clone(old)
		for _, c := range u.set {
			i := slices.Index(t.names, c.name)
			if i < 0 {
				return nil, errorf(stateNoColumn, "column %q of relation %q does not exist", c.name, t.name)
			}
			if slices.Contains(t.key, i) {
				return nil, errorf("0A000", "the model changes no primary key: %s", c.name)
			}
			s.row = old
			row[i] = c.value(s)
		}
		if s.err != nil {
			return nil, s.err
		}
		return row, t.examine(x, row)
	})
}

// removal is DELETE.
type removal struct {
	table string
	where expression
}

func (d *removal) execute(x *execution) (*result, error) {
	return x.change(d.table, d.where, func(*scope, *table, []any) ([]any, error) { return nil, nil })
}

// change writes a new row in place of each row that a condition holds for, one after the other. The condition is
// asked again of a row that another transaction has changed while this one waited.
func (x *execution) change(
	name string, where expression, how func(s *scope, t *table, old []any) ([]any, error),
) (*result, error) {
	t, err := x.writable(name)
	if err != nil {
		return nil, err
	}
	s := &scope{run: x}
	found, err := x.scan(name, s)
	if err == nil {
		found, err = filtered(s, found, where)
	}
	if err != nil {
		return nil, err
	}
	r := &result{}
	for _, c := range found {
		old, err := x.lockCurrent(s, c, where, false)
		if err != nil {
			return nil, err
		}
		if old == nil {
			continue
		}
		row, err := how(s, t, old)
		if err != nil {
			return nil, err
		}
		c.slot.write(row)
		r.affected++
	}
	return r, nil
}

// creation is CREATE TABLE.
type creation struct {
	table     *table
	ifMissing bool
}

func (c *creation) execute(x *execution) (*result, error) {
	switch {
	case x.server.readOnly:
		return nil, serverError(stateReadOnly)
	case x.server.tables[c.table.name] == nil:
		x.server.create(c.table, time.Now())
	case !c.ifMissing:
		return nil, errorf(stateTableThere, "relation %q already exists", c.table.name)
	}
	return &result{}, nil
}

// setting is SET LOCAL of a time.
type setting struct {
	name  string
	value time.Duration
}

func (s *setting) execute(x *execution) (*result, error) {
	if s.name != "lock_timeout" {
		return nil, errorf("42704", "unrecognized configuration parameter %q", s.name)
	}
	x.tx.patience = s.value
	return &result{}, nil
}
