package modeldb

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// expression is a compiled expression. A failure is kept in the scope, and its value is nil.
type expression func(s *scope) any

// scope is where an expression is evaluated.
type scope struct {
	run *execution
	// names are the columns of row, and group are the rows of an aggregate.
	names []string
	row   []any
	group [][]any
	err   error
}

func (s *scope) fail(err error) any {
	if s.err == nil {
		s.err = err
	}
	return nil
}

// truth evaluates a condition; no condition is true, and unknown is false.
func (s *scope) truth(condition expression) bool {
	if condition == nil {
		return true
	}
	is, _ := condition(s).(bool)
	return is
}

func constant(v any) expression { return func(*scope) any { return v } }

func columnNamed(name string) expression {
	return func(s *scope) any {
		if i := slices.Index(s.names, name); i >= 0 {
			return s.row[i]
		}
		return s.fail(errorf(stateNoColumn, "column %q does not exist", name))
	}
}

func parameterNumbered(text string) expression {
	n, err := strconv.Atoi(text)
	return func(s *scope) any {
		if err != nil || n < 1 || n > len(s.run.args) {
			return s.fail(errorf("42P02", "there is no parameter $%s", text))
		}
		return s.run.args[n-1]
	}
}

// either, both and not are the logic of three values.
func either(a, b expression) expression {
	return func(s *scope) any {
		x, y := a(s), b(s)
		switch {
		case x == true || y == true:
			return true
		case x == nil || y == nil:
			return nil
		}
		return false
	}
}

func both(a, b expression) expression {
	return func(s *scope) any {
		x := a(s)
		if x == false {
			return false
		}
		y := b(s)
		switch {
		case y == false:
			return false
		case x == nil || y == nil:
			return nil
		}
		return true
	}
}

func not(a expression) expression {
	return func(s *scope) any {
		if is, known := a(s).(bool); known {
			return !is
		}
		return nil
	}
}

// comparisons judge the order of two values.
var comparisons = map[string]func(order int) bool{
	"=": func(o int) bool { return o == 0 }, "<>": func(o int) bool { return o != 0 },
	"<": func(o int) bool { return o < 0 }, "<=": func(o int) bool { return o <= 0 },
	">": func(o int) bool { return o > 0 }, ">=": func(o int) bool { return o >= 0 },
}

func compared(operator string, a, b expression) expression {
	judge := comparisons[operator]
	return func(s *scope) any {
		x, y := a(s), b(s)
		if x == nil || y == nil {
			return nil
		}
		order, ok := compare(x, y)
		if !ok {
			return s.fail(errorf("42883", "operator does not exist: %T %s %T", x, operator, y))
		}
		return judge(order)
	}
}

// isNull tells NULL from values.
func isNull(a expression) expression { return func(s *scope) any { return a(s) == nil } }

// oneOf is IN: unknown, if no element is equal and one is NULL.
func oneOf(a expression, list func(s *scope) []any) expression {
	return func(s *scope) any {
		x := a(s)
		if x == nil {
			return nil
		}
		var found any = false
		for _, y := range list(s) {
			if y == nil {
				found = nil
				continue
			}
			order, ok := compare(x, y)
			switch {
			case !ok:
				return s.fail(errorf("42883", "operator does not exist: %T IN %T", x, y))
			case order == 0:
				return true
			}
		}
		return found
	}
}

// calculated is arithmetic, of integers unless one operand has a fraction.
func calculated(operator string, a, b expression) expression {
	return func(s *scope) any {
		x, y := a(s), b(s)
		if x == nil || y == nil {
			return nil
		}
		m, isInteger := x.(int64)
		n, isOther := y.(int64)
		if isInteger && isOther {
			return map[string]int64{"+": m + n, "-": m - n, "*": m * n}[operator]
		}
		f, isNumber := numberOf(x)
		g, isAnother := numberOf(y)
		if !isNumber || !isAnother {
			return s.fail(errorf("42883", "operator does not exist: %T %s %T", x, operator, y))
		}
		return map[string]float64{"+": f + g, "-": f - g, "*": f * g}[operator]
	}
}

// matched is a regular expression of PostgreSQL that Go understands too.
func matched(a, pattern expression) expression {
	return func(s *scope) any {
		text, isText := textOf(a(s))
		source, _ := textOf(pattern(s))
		if !isText {
			return nil
		}
		r, err := regexp.Compile(source)
		if err != nil {
			return s.fail(errorf("2201B", "%v", err))
		}
		return r.MatchString(text)
	}
}

// branch is a WHEN of CASE.
type branch struct{ when, then expression }

func chosen(branches []branch, otherwise expression) expression {
	return func(s *scope) any {
		for _, b := range branches {
			if s.truth(b.when) {
				return b.then(s)
			}
		}
		if otherwise == nil {
			return nil
		}
		return otherwise(s)
	}
}

func castTo(a expression, kind string) expression {
	return func(s *scope) any {
		v, err := cast(a(s), kind)
		if err != nil {
			return s.fail(err)
		}
		return v
	}
}

// counted and least are the aggregates COUNT(*) and MIN.
func counted() expression { return func(s *scope) any { return int64(len(s.group)) } }

func least(a expression) expression {
	return func(s *scope) (smallest any) {
		for _, row := range s.group {
			one := scope{run: s.run, names: s.names, row: row}
			v := a(&one)
			if one.err != nil {
				return s.fail(one.err)
			}
			if order, ok := compare(smallest, v); v != nil && (smallest == nil || ok && order > 0) {
				smallest = v
			}
		}
		return smallest
	}
}

// epoch is EXTRACT(EPOCH FROM a).
func epoch(a expression) expression {
	return func(s *scope) any {
		at, is := a(s).(time.Time)
		if !is {
			return s.fail(errorf("42883", "EXTRACT from something that is no time"))
		}
		return float64(at.UnixMicro()) / 1e6
	}
}

func called(name string, arguments []expression) expression {
	return func(s *scope) any {
		function := functions[name]
		values := make([]any, len(arguments))
		for i, a := range arguments {
			values[i] = a(s)
		}
		if s.err != nil {
			return nil
		}
		v, err := function(s.run, values)
		if err != nil {
			return s.fail(err)
		}
		return v
	}
}

// like is LIKE with a percent sign at the end alone.
func like(pattern string) string { return "^" + regexp.QuoteMeta(strings.TrimSuffix(pattern, "%")) }
