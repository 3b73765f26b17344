package modeldb

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Values are nil, bool, int64, float64, string and bytea. A comparison with nil is nil, as in SQL.

// bytea is a value of bytes that can be compared.
type bytea string

// fromDriver is a parameter as a value.
func fromDriver(v driver.Value) any {
	if b, is := v.([]byte); is {
		if b == nil {
			return nil
		}
		return bytea(b)
	}
	return v
}

// toDriver is a value as a column of a result.
func toDriver(v any) driver.Value {
	if b, is := v.(bytea); is {
		return bytes.Clone([]byte(b))
	}
	return v
}

// compare returns the order of two values that are not nil; false for values of different kinds.
func compare(a, b any) (order int, ok bool) {
	if x, isText := textOf(a); isText {
		y, isText := textOf(b)
		return cmp.Compare(x, y), isText
	}
	if x, isNumber := numberOf(a); isNumber {
		y, isNumber := numberOf(b)
		return cmp.Compare(x, y), isNumber
	}
	x, isBool := a.(bool)
	y, isOther := b.(bool)
	switch {
	case x == y:
		return 0, isBool && isOther
	case x:
		return 1, isBool && isOther
	}
	return -1, isBool && isOther
}

func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bytea:
		return string(v), true
	}
	return "", false
}

func numberOf(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// cast is a value as that of a column or a cast of a type.
func cast(v any, kind string) (any, error) {
	if v == nil {
		return nil, nil
	}
	text, isText := textOf(v)
	switch kind {
	case "text", "regclass":
		if isText {
			return text, nil
		}
		return fmt.Sprint(v), nil
	case "bytea":
		if isText {
			return bytea(text), nil
		}
	case "bigint", "int", "integer", "smallint":
		if n, err := strconv.ParseInt(text, 10, 64); isText && err == nil {
			return n, nil
		}
		if n, is := numberOf(v); is {
			return int64(math.Round(n)), nil
		}
	case "boolean":
		if b, is := v.(bool); is {
			return b, nil
		}
	}
	return nil, errorf("22P02", "invalid value %v for the type %s", v, kind)
}

// keyOf is the primary key of a row as one text.
func keyOf(row []any, columns []int) string {
	var b strings.Builder
	for _, i := range columns {
		text := fmt.Sprint(row[i])
		fmt.Fprintf(&b, "%d:%s", len(text), text)
	}
	return b.String()
}
