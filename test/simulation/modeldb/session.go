package modeldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"slices"
)

// session is the server's side of a connection. Its fields are under the server's mutex.
type session struct {
	server *Server
	pid    int64
	// killed is closed when the server ends the session.
	killed chan struct{}
	ended  bool
	// tx is the transaction that the client has begun; nil: each statement is one.
	tx *transaction
	// running: a statement runs, which ends the transaction itself after a kill.
	running bool
}

// errRolledBack is the error of pgx for the COMMIT of a failed transaction.
var errRolledBack = errors.New("commit unexpectedly resulted in rollback")

// connect begins a session.
func (s *Server) connect() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errRefused()
	}
	s.connected++
	c := &session{server: s, pid: s.connected, killed: make(chan struct{})}
	s.sessions = append(s.sessions, c)
	return c, nil
}

// kill ends the session by the server. The caller has the mutex.
func (c *session) kill() {
	if c.ended {
		return
	}
	c.ended = true
	close(c.killed)
	if !c.running {
		c.rollback()
	}
}

// end ends the session by its client.
func (c *session) end() {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.kill()
	c.server.sessions = slices.DeleteFunc(c.server.sessions, func(o *session) bool { return o == c })
}

func (c *session) alive() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return !c.ended
}

func (c *session) inTransaction() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.tx != nil
}

func (c *session) rollback() {
	if c.tx != nil {
		c.tx.end()
		c.tx = nil
	}
}

// control begins or ends a transaction.
func (c *session) control(what control, readOnly bool) error {
	switch what {
	case "begin":
		c.tx = &transaction{readOnly: readOnly}
	case "rollback":
		c.rollback()
	case "commit":
		tx := c.tx
		c.tx = nil
		switch {
		case tx == nil:
		case tx.failed:
			return errRolledBack
		default:
			c.server.commit(tx)
		}
	}
	return nil
}

// perform runs the statements of a text.
func (c *session) perform(ctx context.Context, text string, args []driver.NamedValue) (r *result, err error) {
	statements, err := compile(text)
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if err != nil {
		c.server.unknown = append(c.server.unknown, err.Error())
	}
	c.server.follow()
	values := make([]any, len(args))
	for i, a := range args {
		values[i] = fromDriver(a.Value)
	}
	for _, statement := range statements {
		if r, err = c.one(ctx, statement, values); err != nil {
			break
		}
	}
	if err != nil && c.tx != nil {
		c.tx.end() // the locks end with the failure; the client's ROLLBACK follows
	}
	if c.ended {
		c.rollback()
	}
	return r, err
}

// one runs a statement, in the transaction of the session or in one of its own.
func (c *session) one(ctx context.Context, statement statement, args []any) (*result, error) {
	if what, is := statement.(control); is {
		if err := c.control(what, false); !errors.Is(err, errRolledBack) { // which is an error of Tx.Commit alone
			return &result{}, err
		}
		return &result{}, nil
	}
	tx := c.tx
	if tx == nil {
		tx = &transaction{}
	}
	if tx.failed {
		return nil, serverError(stateFailed)
	}
	x := &execution{ctx: ctx, server: c.server, session: c, tx: tx, args: args, began: c.server.now()}
	c.running = true
	r, err := statement.execute(x)
	c.running = false
	switch {
	case c.tx != nil:
	case err != nil || c.ended:
		tx.end()
	default:
		c.server.commit(tx)
	}
	return r, err
}

// refuse is the server's error instead of a call.
func (c *session) refuse(step Step, state string) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	switch {
	case step == Commit:
		c.rollback()
	case c.tx != nil:
		c.tx.end()
	}
	if state == stateShutdown {
		c.kill()
	}
	return serverError(state)
}
