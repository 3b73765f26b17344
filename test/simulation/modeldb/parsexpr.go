package modeldb

import "strconv"

// named is an expression with the name that its column gets.
type named struct {
	name string
	expression
}

func unnamed(e expression) named { return named{"", e} }

func (p *parser) expressions() (all []expression) {
	for {
		all = append(all, p.expression().expression)
		if !p.takes(",") {
			return all
		}
	}
}

func (p *parser) expression() named {
	left := p.conjunction()
	for p.takes("or") {
		left = unnamed(either(left.expression, p.conjunction().expression))
	}
	return left
}

func (p *parser) conjunction() named {
	left := p.negation()
	for p.takes("and") {
		left = unnamed(both(left.expression, p.negation().expression))
	}
	return left
}

func (p *parser) negation() named {
	if p.takes("not") {
		return unnamed(not(p.negation().expression))
	}
	return p.comparison()
}

func (p *parser) comparison() named {
	left := p.sum()
	for operator := range comparisons {
		if p.takes(operator) {
			return unnamed(compared(operator, left.expression, p.sum().expression))
		}
	}
	a := left.expression
	switch {
	case p.takes("is not null"):
		return unnamed(not(isNull(a)))
	case p.takes("is null"):
		return unnamed(isNull(a))
	case p.takes("not in"):
		return unnamed(not(p.membership(a)))
	case p.takes("in"):
		return unnamed(p.membership(a))
	case p.takes("between"):
		from := p.sum().expression
		p.need("and")
		return unnamed(both(compared(">=", a, from), compared("<=", a, p.sum().expression)))
	case p.takes("~"):
		return unnamed(matched(a, p.sum().expression))
	case p.takes("!~"):
		return unnamed(not(matched(a, p.sum().expression)))
	case p.takes("not like"):
		return unnamed(not(matched(a, constant(like(p.next().text)))))
	}
	return left
}

// membership reads what stands behind IN.
func (p *parser) membership(a expression) (e expression) {
	p.need("(")
	if p.is("select") {
		q := p.query()
		e = oneOf(a, func(s *scope) (list []any) {
			for _, row := range s.subquery(q) {
				list = append(list, row[0])
			}
			return list
		})
	} else {
		all := p.expressions()
		e = oneOf(a, func(s *scope) []any {
			list := make([]any, len(all))
			for i, element := range all {
				list[i] = element(s)
			}
			return list
		})
	}
	p.need(")")
	return e
}

// subquery runs a query that names no column of the statement around it.
func (s *scope) subquery(q *query) [][]any {
	found, err := q.execute(s.run)
	if err != nil {
		s.fail(err)
		return nil
	}
	return found.rows
}

func (p *parser) sum() named {
	left := p.product()
	for {
		switch {
		case p.takes("+"):
			left = unnamed(calculated("+", left.expression, p.product().expression))
		case p.takes("-"):
			left = unnamed(calculated("-", left.expression, p.product().expression))
		default:
			return left
		}
	}
}

func (p *parser) product() named {
	left := p.operand()
	for p.takes("*") {
		left = unnamed(calculated("*", left.expression, p.operand().expression))
	}
	return left
}

// operand reads a sign, a value and its casts.
func (p *parser) operand() named {
	if p.takes("+") {
		return p.operand()
	}
	if p.takes("-") {
		return unnamed(calculated("-", constant(int64(0)), p.operand().expression))
	}
	value := p.value()
	for p.takes("::") {
		value = named{value.name, castTo(value.expression, p.next().text)}
	}
	return value
}

func (p *parser) value() named {
	switch {
	case p.takes("("):
		e := p.expression()
		p.need(")")
		return e
	case p.takes("case"):
		return named{"case", p.branches()}
	case p.takes("exists ("):
		q := p.query()
		p.need(")")
		return named{"exists", func(s *scope) any { return len(s.subquery(q)) > 0 }}
	case p.takes("count ( * )"):
		p.aggregates = true
		return named{"count", counted()}
	case p.takes("min ("):
		e := p.expression()
		p.need(")")
		p.aggregates = true
		return named{"min", least(e.expression)}
	case p.takes("extract ( epoch from"):
		e := p.expression()
		p.need(")")
		return named{"extract", epoch(e.expression)}
	case p.takes("null"):
		return unnamed(constant(nil))
	case p.takes("true"):
		return unnamed(constant(true))
	case p.takes("false"):
		return unnamed(constant(false))
	}
	t := p.next()
	switch t.kind {
	case numberToken:
		n, _ := strconv.ParseInt(t.text, 10, 64)
		return unnamed(constant(n))
	case textToken:
		return unnamed(constant(t.text))
	case parameterToken:
		return unnamed(parameterNumbered(t.text))
	case wordToken:
		if p.takes("(") {
			return p.call(t)
		}
		return named{t.text, columnNamed(t.text)}
	}
	p.fail(t)
	return unnamed(constant(nil))
}

func (p *parser) call(function token) named {
	var arguments []expression
	if !p.is(")") {
		arguments = p.expressions()
	}
	p.need(")")
	if functions[function.text] == nil {
		p.fail(function)
	}
	return named{function.text, called(function.text, arguments)}
}

func (p *parser) branches() expression {
	var all []branch
	var otherwise expression
	for p.takes("when") {
		b := branch{when: p.expression().expression}
		p.need("then")
		b.then = p.expression().expression
		all = append(all, b)
	}
	if p.takes("else") {
		otherwise = p.expression().expression
	}
	p.need("end")
	return chosen(all, otherwise)
}
