package modeldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Address is a name under which clients find a server, as a service's DSN. Connections that are there stay with their
// server.
type Address struct {
	mu     sync.Mutex
	server *Server
	// conns are those of the pool; dead: the process of the pool was killed.
	conns map[*conn]bool
	dead  bool
}

// NewAddress returns an address of a server.
func NewAddress(server *Server) *Address { return &Address{server: server, conns: map[*conn]bool{}} }

// Kill ends all connections of this address, as the end of their process does, and lets none begin. The server notices
// after a time: until then it holds the locks of their transactions.
func (a *Address) Kill(lingers time.Duration) {
	a.mu.Lock()
	a.dead = true
	conns := a.conns
	a.conns = nil
	a.mu.Unlock()
	for c := range conns {
		c.leave(lingers)
	}
}

// keep notes a connection; false: the process is dead.
func (a *Address) keep(c *conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.dead {
		a.conns[c] = true
	}
	return !a.dead
}

func (a *Address) forget(c *conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, c)
}

// Point makes new connections go to another server.
func (a *Address) Point(server *Server) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.server = server
}

// current is the server of new connections.
func (a *Address) current() *Server {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.server
}

// Open returns a pool of connections. The caller closes the pool.
func (a *Address) Open() *sql.DB { return sql.OpenDB(a) }

// Driver implements driver.Connector.
func (a *Address) Driver() driver.Driver { return addressDriver{} }

// Connect implements driver.Connector.
func (a *Address) Connect(ctx context.Context) (driver.Conn, error) {
	server := a.current()
	trouble := server.trouble(Connect, false)
	if err := sleep(ctx, trouble.Delay); err != nil {
		return nil, err
	}
	if trouble.Cut != Uncut {
		return nil, errRefused()
	}
	if trouble.State != "" {
		return nil, serverError(trouble.State)
	}
	session, err := server.connect()
	if err != nil {
		return nil, err
	}
	c := &conn{session: session, address: a}
	if !a.keep(c) {
		c.leave(0)
		return nil, errRefused()
	}
	return c, nil
}

// addressDriver opens nothing: an Address is its own connector.
type addressDriver struct{}

// Open implements driver.Driver.
func (addressDriver) Open(string) (driver.Conn, error) {
	return nil, errors.New("modeldb: open the database by Address.Open")
}

// conn is the client's side of a connection. database/sql makes its calls one at a time.
type conn struct {
	session *session
	address *Address
	// closed: the client has no connection any more; the server may not know that yet.
	closed atomic.Bool
	used   time.Time
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return !c.closed.Load() }

// ResetSession implements driver.SessionResetter. As pgx does, it asks a server that was not asked for a second.
func (c *conn) ResetSession(context.Context) error {
	if c.closed.Load() || time.Since(c.used) > time.Second && !c.session.alive() {
		return driver.ErrBadConn
	}
	return nil
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	c.leave(0)
	return nil
}

// drop closes the client's side; false: it was closed before.
func (c *conn) drop() bool {
	c.address.forget(c)
	return !c.closed.Swap(true)
}

// leave ends the connection, which the server notices after a time.
func (c *conn) leave(lingers time.Duration) {
	if !c.drop() {
		return
	}
	if lingers == 0 {
		c.session.end()
		return
	}
	time.AfterFunc(lingers, c.session.end)
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("modeldb: statements are not prepared")
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) { return c.BeginTx(context.Background(), driver.TxOptions{}) }

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	level := sql.IsolationLevel(options.Isolation)
	if level != sql.LevelDefault && level != sql.LevelReadCommitted {
		return nil, errors.New("modeldb: no level but READ COMMITTED is modelled")
	}
	err := c.call(ctx, Begin, func(context.Context) error { return c.locked("begin", options.ReadOnly) })
	return c, err
}

// Commit implements driver.Tx.
func (c *conn) Commit() error {
	return c.call(context.Background(), Commit, func(context.Context) error { return c.locked("commit", false) })
}

// Rollback implements driver.Tx.
func (c *conn) Rollback() error {
	return c.call(context.Background(), Rollback, func(context.Context) error { return c.locked("rollback", false) })
}

func (c *conn) locked(what control, readOnly bool) error {
	c.session.server.mu.Lock()
	defer c.session.server.mu.Unlock()
	if c.session.ended {
		return errReset()
	}
	return c.session.control(what, readOnly)
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	r, err := c.perform(ctx, text, args)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(r.affected), nil
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	r, err := c.perform(ctx, text, args)
	if err != nil {
		return nil, err
	}
	return &rows{*r}, nil
}

func (c *conn) perform(ctx context.Context, text string, args []driver.NamedValue) (r *result, err error) {
	err = c.call(ctx, Statement, func(ctx context.Context) error {
		var failed error
		r, failed = c.session.perform(ctx, text, args)
		return failed
	})
	return r, err
}

// call makes a call, with the trouble that it has. A context that ends during a call ends the connection.
func (c *conn) call(ctx context.Context, step Step, run func(ctx context.Context) error) error {
	switch {
	case c.closed.Load():
		return driver.ErrBadConn
	case !c.session.alive():
		c.drop()
		return errReset()
	}
	c.used = time.Now()
	trouble := c.session.server.trouble(step, c.session.inTransaction())
	if err := sleep(ctx, trouble.Delay); err != nil {
		c.leave(trouble.Lingers)
		return err
	}
	switch {
	case trouble.Cut == CutBefore:
		c.leave(trouble.Lingers)
		return errReset()
	case trouble.Cut == CutLate:
		c.drop()
		time.AfterFunc(trouble.Lingers, func() {
			_ = run(context.WithoutCancel(ctx)) // the client has its error already
			c.session.end()
		})
		return errReset()
	case trouble.State != "" && step != Rollback: // which no server refuses
		return c.session.refuse(step, trouble.State)
	}
	err := run(ctx)
	if err == nil && trouble.Cut == Uncut {
		err = sleep(ctx, trouble.AnswerDelay)
	}
	switch {
	case trouble.Cut == CutAfter:
		c.leave(trouble.Lingers)
		return errReset()
	case err != nil && ctx.Err() != nil:
		c.leave(0)
	}
	return err
}

// sleep waits, or returns the error of the context that ends before.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rows are the rows of a result.
type rows struct{ result }

// Columns implements driver.Rows.
func (r *rows) Columns() []string { return r.columns }

// Close implements driver.Rows.
func (r *rows) Close() error { return nil }

// Next implements driver.Rows.
func (r *rows) Next(to []driver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	for i, v := range r.rows[0] {
		to[i] = toDriver(v)
	}
	r.rows = r.rows[1:]
	return nil
}
