package sqldb

import (
	"database/sql"
	"reflect"
	"sync/atomic"
)

// refuseCommits has a session of SQLite roll back at each COMMIT, also of a single statement outside a transaction,
// until allowed is set. The returned function ends that, and must be called. SQLite has no statement for it, but a
// hook: the drivers' connections have a method RegisterCommitHook, with function types of their own. A driver without
// the method lets each COMMIT pass.
func refuseCommits(conn *sql.Conn, allowed *atomic.Bool) (end func() error, err error) {
	err = setCommitHook(conn, func(hook reflect.Type) reflect.Value {
		return reflect.MakeFunc(hook, func([]reflect.Value) []reflect.Value {
			refused := 1
			if allowed.Load() {
				refused = 0
			}
			return []reflect.Value{reflect.ValueOf(refused).Convert(hook.Out(0))}
		})
	})
	return func() error { return setCommitHook(conn, reflect.Zero) }, err
}

func setCommitHook(conn *sql.Conn, hook func(of reflect.Type) reflect.Value) error {
	return conn.Raw(func(driverConn any) error {
		register := reflect.ValueOf(driverConn).MethodByName("RegisterCommitHook")
		if !register.IsValid() || register.Type().NumIn() != 1 {
			return nil
		}
		of := register.Type().In(0)
		if of.Kind() != reflect.Func || of.NumIn() != 0 || of.NumOut() != 1 || !isInteger(of.Out(0)) {
			return nil
		}
		register.Call([]reflect.Value{hook(of)})
		return nil
	})
}

func isInteger(t reflect.Type) bool {
	return t.Kind() != reflect.String && reflect.TypeFor[int]().ConvertibleTo(t)
}
