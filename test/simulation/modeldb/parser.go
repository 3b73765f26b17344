package modeldb

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// statement is a compiled statement.
type statement interface {
	execute(x *execution) (*result, error)
}

// control is BEGIN, COMMIT or ROLLBACK as text.
type control string

func (c control) execute(*execution) (*result, error) { return &result{}, nil }

// parser reads statements. After its first error every token is the end.
type parser struct {
	tokens []token
	err    error
	// aggregates: the query at hand has an aggregate.
	aggregates bool
}

var compiled sync.Map // the statements by their text

// compile returns the statements of a text.
func compile(text string) ([]statement, error) {
	if known, is := compiled.Load(text); is {
		return known.([]statement), nil
	}
	p := &parser{tokens: scan(text)}
	var all []statement
	for p.err == nil && len(p.tokens) > 0 {
		all = append(all, p.statement())
		if len(p.tokens) > 0 {
			p.need(";")
		}
	}
	if p.err != nil {
		return nil, errorf(stateSyntax, "%v in: %s", p.err, text)
	}
	compiled.Store(text, all)
	return all, nil
}

func (p *parser) peek() token {
	if p.err != nil || len(p.tokens) == 0 {
		return token{}
	}
	return p.tokens[0]
}

func (p *parser) next() token {
	t := p.peek()
	if t.kind != endToken {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) fail(t token) {
	if p.err == nil {
		p.err = errorf(stateSyntax, "the model does not know the statement from %q on", t.text)
	}
}

// is reports whether words or a symbol come next.
func (p *parser) is(words string) bool {
	for i, word := range strings.Fields(words) {
		if p.err != nil || i >= len(p.tokens) || p.tokens[i].text != word || p.tokens[i].kind == textToken {
			return false
		}
	}
	return true
}

// takes skips words or a symbol that come next.
func (p *parser) takes(words string) bool {
	if !p.is(words) {
		return false
	}
	p.tokens = p.tokens[len(strings.Fields(words)):]
	return true
}

func (p *parser) need(words string) {
	if !p.takes(words) {
		p.fail(p.peek())
	}
}

// name is a name with or without a schema.
func (p *parser) name() string {
	t := p.next()
	if t.kind != wordToken {
		p.fail(t)
	}
	if p.takes(".") {
		return t.text + "." + p.next().text
	}
	return t.text
}

// names is a list in brackets.
func (p *parser) names() (all []string) {
	p.need("(")
	for {
		all = append(all, p.name())
		if !p.takes(",") {
			break
		}
	}
	p.need(")")
	return all
}

func (p *parser) statement() statement {
	switch {
	case p.is("select"):
		return p.query()
	case p.takes("insert into"):
		return p.insert()
	case p.takes("update"):
		return p.update()
	case p.takes("delete from"):
		d := &removal{table: p.name()}
		d.where = p.where()
		return d
	case p.takes("create table"):
		return p.create()
	case p.is("create index"), p.is("create or replace function"), p.is("create trigger"):
		for p.peek().kind != endToken && !p.is(";") {
			p.next()
		}
		return control("")
	case p.takes("set local"):
		s := &setting{name: p.name()}
		p.need("=")
		n, err := strconv.Atoi(p.next().text)
		if s.value = time.Duration(n) * time.Millisecond; err != nil {
			p.fail(token{text: err.Error()})
		}
		return s
	}
	for _, c := range []string{"begin", "commit", "rollback"} {
		if p.takes(c) {
			return control(c)
		}
	}
	p.fail(p.peek())
	return nil
}

// query reads SELECT, with a UNION ALL behind it.
func (p *parser) query() *query {
	outer := p.aggregates
	defer func() { p.aggregates = outer }()
	p.aggregates = false
	p.need("select")
	q := &query{}
	for {
		e := p.expression()
		c := column{name: p.lastName(e), value: e.expression}
		if p.takes("as") {
			c.name = p.name()
		}
		q.items = append(q.items, c)
		if !p.takes(",") {
			break
		}
	}
	if p.takes("from") {
		if p.takes("(") {
			q.inner = p.query()
			p.need(")")
			p.name() // the alias
		} else {
			q.table = p.name()
		}
	}
	q.where = p.where()
	if p.takes("group by") {
		q.group = p.expressions()
	}
	q.aggregate = p.aggregates || q.group != nil
	p.tail(q)
	return q
}

// tail reads what stands behind the groups of a query.
func (p *parser) tail(q *query) {
	if p.takes("order by") {
		for {
			o := order{by: p.expression().expression, descending: p.takes("desc")}
			q.order = append(q.order, o)
			if !p.takes(",") {
				break
			}
		}
	}
	if p.takes("limit") {
		q.limit = p.expression().expression
	}
	if p.takes("for update") {
		q.locks, q.skips = true, p.takes("skip locked")
	}
	if p.takes("union all") {
		q.union = p.query()
	}
}

func (p *parser) where() expression {
	if p.takes("where") {
		return p.expression().expression
	}
	return nil
}

// lastName is the name of a column of a result.
func (p *parser) lastName(e named) string {
	if e.name == "" {
		return "?column?"
	}
	return e.name
}

func (p *parser) insert() statement {
	i := &insertion{table: p.name(), columns: p.names()}
	if p.takes("values") {
		for {
			p.need("(")
			i.values = append(i.values, p.expressions())
			p.need(")")
			if !p.takes(",") {
				break
			}
		}
	} else {
		i.from = p.query()
	}
	i.keepsOld = p.takes("on conflict do nothing")
	return i
}

func (p *parser) update() statement {
	u := &update{table: p.name()}
	p.need("set")
	for {
		c := column{name: p.name()}
		p.need("=")
		c.value = p.expression().expression
		u.set = append(u.set, c)
		if !p.takes(",") {
			break
		}
	}
	u.where = p.where()
	return u
}

// create reads a table. Of its constraints those on JSON are not modelled.
func (p *parser) create() statement {
	c := &creation{ifMissing: p.takes("if not exists")}
	c.table = &table{name: p.name(), rows: map[string]*slot{}}
	p.need("(")
	for {
		switch {
		case p.takes("primary key"):
			for _, name := range p.names() {
				c.table.key = append(c.table.key, slices.Index(c.table.names, name))
			}
		case p.takes("constraint"):
			name := p.name()
			p.need("check")
			p.check(c.table, name)
		default:
			p.column(c.table)
		}
		if !p.takes(",") {
			break
		}
	}
	p.need(")")
	return c
}

func (p *parser) column(t *table) {
	t.names = append(t.names, p.name())
	kind := p.next()
	t.kinds = append(t.kinds, kind.text)
	if !slices.Contains([]string{"text", "bytea", "bigint", "int", "integer", "smallint", "boolean"}, kind.text) {
		p.fail(kind)
	}
	var required bool
	var usual expression
	for more := true; more; {
		switch {
		case p.takes("collate"):
			p.next()
		case p.takes("not null"):
			required = true
		case p.takes("default"):
			usual = p.sum().expression
		case p.takes("primary key"):
			t.key, required = []int{len(t.names) - 1}, true
		default:
			more = false
		}
	}
	t.required, t.usual = append(t.required, required), append(t.usual, usual)
}

func (p *parser) check(t *table, name string) {
	depth := 0
	for i, tok := range p.tokens {
		switch {
		case tok.kind == symbolToken && tok.text == "(":
			depth++
		case tok.kind == symbolToken && tok.text == ")":
			depth--
		}
		if depth > 0 {
			continue
		}
		condition := p.tokens[:i+1]
		p.tokens = p.tokens[i+1:]
		if slices.ContainsFunc(condition, func(t token) bool { return t.text == "jsonb" }) {
			return
		}
		inner := &parser{tokens: condition}
		t.checks = append(t.checks, column{name: name, value: inner.expression().expression})
		if inner.err != nil {
			p.err = inner.err
		}
		return
	}
	p.fail(p.peek())
}
