package modeldb

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"
)

// Server is a database. It is safe for concurrent use.
type Server struct {
	name   string
	faults Faults

	mu       sync.Mutex
	tables   map[string]*table
	advisory *table
	// ahead is how far the server's clock is ahead of the clients'.
	ahead time.Duration
	// log are the commits, from which replicas are made.
	log      []entry
	sessions []*session
	// connected counts the sessions that there were.
	connected int64
	// away: the server takes no connections. readOnly: it takes no writes.
	away, readOnly bool
	// A replica applies the log of its primary as it was lag ago, from applied on.
	primary *Server
	lag     time.Duration
	applied int
	unknown []string
	watch   func(table string, row Row)
}

// Row is a row of a table by its columns. Bytes are texts.
type Row map[string]any

// entry is a commit, or the creation of a table.
type entry struct {
	at      time.Time
	created *table
	changes []change
}

// change is a row of a table after a commit; nil: removed.
type change struct {
	table, key string
	number     int64
	row        []any
}

// firstPlainTime is the first that the table of the plain outbox takes for milliseconds. A bubble begins before.
var firstPlainTime = time.UnixMilli(1_000_000_000_000)

// NewServer returns an empty database. The name is for Faults; nil Faults break nothing.
func NewServer(name string, faults Faults) *Server {
	var ahead time.Duration
	if time.Now().Before(firstPlainTime) {
		ahead = 25 * 365 * 24 * time.Hour
	}
	return &Server{
		ahead: ahead,
		name:  name, faults: faults, tables: map[string]*table{},
		advisory: &table{name: "advisory locks", rows: map[string]*slot{}},
	}
}

// Replica returns a read-only copy that has each commit of the server after a lag.
func (s *Server) Replica(name string, lag time.Duration) *Server {
	r := NewServer(name, s.faults)
	r.watch = s.watch
	r.primary, r.lag, r.readOnly = s, lag, true
	return r
}

// Break has faults decide about the calls from now on.
func (s *Server) Break(faults Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
}

// Watch has a function called with each row that a commit writes, in the moment of the commit and before the client
// knows. The function must not call the server. Replicas that are made later have the same function, which they call
// for the commits of their own.
func (s *Server) Watch(watch func(table string, row Row)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch = watch
}

// tell calls the watch.
func (s *Server) tell(t *table, row []any) {
	if s.watch == nil || row == nil {
		return
	}
	r := Row{}
	for i, name := range t.names {
		r[name] = row[i]
		if text, is := row[i].(bytea); is {
			r[name] = string(text)
		}
	}
	s.watch(t.name, r)
}

// Promote makes a replica a server that takes writes. The commits that it had not applied are lost.
func (s *Server) Promote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	s.primary, s.readOnly = nil, false
}

// Demote makes a server refuse writes; its open transactions end.
func (s *Server) Demote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readOnly = true
	s.endSessions()
}

// StepClock sets the server's clock forward, or back.
func (s *Server) StepClock(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += by
}

// Stop ends all connections, and the server takes none until Start. What was committed stays.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = true
	s.endSessions()
}

// Start ends Stop.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = false
}

// Disconnect ends all connections; new ones are taken.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endSessions()
}

// Unknown lists the statements that the model has refused because it does not know them.
func (s *Server) Unknown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unknown)
}

// Open returns a pool of connections to this server. The caller closes the pool.
func (s *Server) Open() *sql.DB { return NewAddress(s).Open() }

// Read runs a query on what is committed, without any fault: for those who know the truth.
func (s *Server) Read(text string, args ...any) (rows [][]any, err error) {
	statements, err := compile(text)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow()
	x := &execution{ctx: context.Background(), server: s, tx: &transaction{readOnly: true}, began: s.now()}
	for _, a := range args {
		x.args = append(x.args, fromDriver(a))
	}
	for _, statement := range statements {
		r, err := statement.execute(x)
		if err != nil {
			return nil, err
		}
		rows = r.rows
	}
	return rows, nil
}

// now is the server's clock.
func (s *Server) now() time.Time { return time.Now().Add(s.ahead) }

func (s *Server) endSessions() {
	for _, c := range s.sessions {
		c.kill()
	}
	s.sessions = nil
}

// create adds a table without rows.
func (s *Server) create(of *table, at time.Time) {
	t := *of
	t.rows, t.order = map[string]*slot{}, nil
	s.tables[t.name] = &t
	s.log = append(s.log, entry{at: at, created: of})
}

// catalog returns a row for each table, in the order of their names.
func (s *Server) catalog(row func(*table) []any) (rows [][]any) {
	var names []string
	for name := range s.tables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		rows = append(rows, row(s.tables[name]))
	}
	return rows
}

// commit makes the rows of a transaction those of all, and ends the transaction.
func (s *Server) commit(tx *transaction) {
	e := entry{at: time.Now()}
	for _, held := range tx.held {
		if held.written {
			held.committed = held.pending
			s.tell(held.table, held.committed)
			e.changes = append(e.changes, change{held.table.name, held.key, held.number, held.pending})
		}
	}
	if e.changes != nil {
		s.log = append(s.log, e)
	}
	tx.end()
}

// end releases the locks of a transaction, and with them what was not committed. The transaction takes no statement
// after that.
func (tx *transaction) end() {
	held := tx.held
	tx.held, tx.failed = nil, true
	for _, s := range held {
		s.release()
	}
}

// follow applies what the primary had committed at the time of the replica's lag.
func (s *Server) follow() {
	if s.primary == nil {
		return
	}
	s.primary.mu.Lock()
	log := s.primary.log
	s.primary.mu.Unlock()
	until := time.Now().Add(-s.lag)
	for ; s.applied < len(log) && !log[s.applied].at.After(until); s.applied++ {
		s.apply(log[s.applied])
	}
}

func (s *Server) apply(e entry) {
	if e.created != nil {
		s.create(e.created, e.at)
		return
	}
	s.log = append(s.log, e)
	for _, c := range e.changes {
		t := s.tables[c.table]
		o := t.rows[c.key]
		if o == nil {
			o = &slot{table: t, key: c.key, number: c.number}
			t.rows[c.key] = o
			at, _ := slices.BinarySearchFunc(t.order, c.number, func(o *slot, n int64) int { return int(o.number - n) })
			t.order = slices.Insert(t.order, at, o)
			t.last = max(t.last, c.number)
		}
		o.committed = c.row
		t.drop(o)
	}
}
