package modeldb

import (
	"crypto/rand"
	"fmt"
	"strings"
)

// functions are those of PostgreSQL that the SDK's statements call.
var functions = map[string]func(x *execution, args []any) (any, error){
	"coalesce":              coalesce,
	"octet_length":          octetLength,
	"convert_to":            func(_ *execution, args []any) (any, error) { return cast(args[0], "bytea") },
	"left":                  left,
	"replace":               replace,
	"gen_random_uuid":       uuid,
	"statement_timestamp":   func(x *execution, _ []any) (any, error) { return x.began, nil },
	"clock_timestamp":       func(x *execution, _ []any) (any, error) { return x.server.now(), nil }, // also after a wait
	"getdatabaseencoding":   func(*execution, []any) (any, error) { return "UTF8", nil },
	"pg_notify":             func(*execution, []any) (any, error) { return nil, nil },
	"pg_backend_pid":        func(x *execution, _ []any) (any, error) { return x.session.pid, nil },
	"to_regclass":           tableNamed,
	"pg_advisory_xact_lock": advisoryLock,
}

func coalesce(_ *execution, args []any) (any, error) {
	for _, v := range args {
		if v != nil {
			return v, nil
		}
	}
	return nil, nil
}

func octetLength(_ *execution, args []any) (any, error) {
	text, is := textOf(args[0])
	if !is {
		return nil, nil
	}
	return int64(len(text)), nil
}

func left(_ *execution, args []any) (any, error) {
	text, _ := textOf(args[0])
	n, _ := args[1].(int64)
	return text[:min(len(text), int(n))], nil
}

func replace(_ *execution, args []any) (any, error) {
	text, _ := textOf(args[0])
	from, _ := textOf(args[1])
	to, _ := textOf(args[2])
	return strings.ReplaceAll(text, from, to), nil
}

func uuid(*execution, []any) (any, error) {
	b := make([]byte, 16)
	_, err := rand.Read(b)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), err
}

func tableNamed(x *execution, args []any) (any, error) {
	name, _ := textOf(args[0])
	if x.server.tables[name] == nil {
		return nil, nil
	}
	return name, nil
}

// advisoryLock is a row of a table that no statement can name.
func advisoryLock(x *execution, args []any) (any, error) {
	t := x.server.advisory
	key := fmt.Sprint(args[0])
	s := t.rows[key]
	if s == nil {
		s = t.add(key)
	}
	_, err := x.lock(s, false)
	return nil, err
}
