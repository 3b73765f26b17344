package simulation

import (
	"context"
	"database/sql"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/faults"
	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

// orderTable holds what the businesses are about. Its committed rows are the truth about commits.
const orderTable = `CREATE TABLE orders (producer TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (producer, id))`

// databases are the databases of a world.
type databases struct {
	mu  sync.Mutex
	all []*sqlDatabase
	// pools are all that were opened: those of killed processes are closed with the world.
	pools []*sql.DB
	// troubles decide about calls, until the first that gives trouble.
	troubles []func(modeldb.Call) modeldb.Trouble
	// lost are the messages whose commit a failover has lost.
	lost map[string]bool
	// held are the times of the transactions of messages.
	held map[string][]span
}

// span is a time; the zero end says that it goes on.
type span struct{ from, to time.Time }

// hold notes that a transaction about a message begins; end is called at its end.
func (d *databases) hold(key string) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := len(d.held[key])
	d.held[key] = append(d.held[key], span{from: time.Now()})
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.held[key][at].to = time.Now()
	}
}

// lingering is how long a transaction may last in its database after its process has gone.
const lingering = time.Minute

// heldAtLast says that the transaction of a message outlasted the last question: the message waits for its Submit, or
// for an operator.
func (d *databases) heldAtLast(s standing) bool {
	if !strings.Contains(s.record.GetLastError(), "UNKNOWN to the final question") {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.held[s.key], func(h span) bool {
		asked := s.record.GetUpdateTime().AsTime()
		return !asked.Before(h.from.Truncate(time.Millisecond)) && (h.to.IsZero() || !asked.After(h.to.Add(lingering)))
	})
}

// sqlDatabase is a name of a database, and the server that has the name now.
type sqlDatabase struct {
	world *World
	name  string
	// effects: the database is that of a consumer.
	effects bool
	// unsent finds rows that a relay has to send; empty: there is no relay.
	unsent string
	// other makes an empty database that may take the name for a while; nil: none may.
	other func() (*modeldb.Server, error)

	// acting is held while a fault stops or replaces the server.
	acting sync.Mutex

	mu        sync.Mutex
	server    *modeldb.Server
	servers   []*modeldb.Server
	addresses []*modeldb.Address
}

// makeTable makes a table.
type makeTable func(ctx context.Context, db *sql.DB) error

// newSQLDatabase makes a database, with tables.
func (w *World) newSQLDatabase(name string, tables ...makeTable) (*sqlDatabase, error) {
	d := &sqlDatabase{world: w, name: name, server: modeldb.NewServer(name, nil)}
	d.servers = []*modeldb.Server{d.server}
	w.databases.mu.Lock()
	w.databases.all = append(w.databases.all, d)
	w.databases.mu.Unlock()
	return d, w.migrate(d.server, tables...)
}

// migrate makes tables, before anything breaks.
func (w *World) migrate(server *modeldb.Server, tables ...makeTable) error {
	defer server.Break(&w.databases)
	db := server.Open()
	defer db.Close()
	for _, table := range tables {
		if err := table(context.Background(), db); err != nil {
			return err
		}
	}
	return nil
}

// statement is a table by its CREATE TABLE.
func statement(text string) makeTable {
	return func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, text)
		return err
	}
}

// Trouble implements modeldb.Faults.
func (d *databases) Trouble(call modeldb.Call) modeldb.Trouble {
	d.mu.Lock()
	troubles := d.troubles
	d.mu.Unlock()
	for _, draw := range troubles {
		if t := draw(call); t != (modeldb.Trouble{}) {
			return t
		}
	}
	return modeldb.Trouble{}
}

// open opens a pool, which is closed with the world at the latest.
func (d *databases) open(a *modeldb.Address) *sql.DB {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool := a.Open()
	d.pools = append(d.pools, pool)
	return pool
}

func (d *databases) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, pool := range d.pools {
		_ = pool.Close() // most are closed already
	}
}

// isLost says whether a failover has lost the commit of a message.
func (d *databases) isLost(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost[key]
}

// unknown are the statements that no server knew.
func (d *databases) unknown() (all []string) {
	for _, one := range d.all {
		for _, server := range one.servers {
			all = append(all, server.Unknown()...)
		}
	}
	return all
}

// rowsWait says that a relay has rows to send, or that a message has not had its effect.
func (w *World) rowsWait() bool {
	for _, d := range w.databases.all {
		if d.unsent != "" && len(d.rows(d.unsent)) > 0 {
			return true
		}
	}
	counts := w.effects.counts()
	return len(counts)+w.losses.withoutEffect(counts) < w.Ledger.DeliveredIDs()
}

// primary is the server that has the name now.
func (d *sqlDatabase) primary() *modeldb.Server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server
}

// address returns a way to the database for a process.
func (d *sqlDatabase) address() *modeldb.Address {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := modeldb.NewAddress(d.server)
	d.addresses = append(d.addresses, a)
	return a
}

// moveTo makes another server the one of the name, for new connections.
func (d *sqlDatabase) moveTo(server *modeldb.Server) (before *modeldb.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, d.server = d.server, server
	d.servers = append(d.servers, server)
	for _, a := range d.addresses {
		a.Point(server)
	}
	return before
}

// rows reads the committed rows.
func (d *sqlDatabase) rows(query string, args ...any) [][]any {
	rows, err := d.primary().Read(query, args...)
	if err != nil {
		d.world.report("the model database does not answer %s: %v", query, err)
	}
	return rows
}

// sqlData are the data of a producer with the SDK's SQL.
type sqlData struct {
	data     *sqlDatabase
	producer string
	// table: messages stand in the local message table, and a relay hands them over.
	table bool
}

// newSQLData makes the database of a producer.
func (w *World) newSQLData(producer string, table bool) (*sqlData, error) {
	d := &sqlData{producer: producer, table: table}
	var err error
	d.data, err = w.newSQLDatabase("database of "+producer, statement(orderTable), d.migrate)
	if err != nil {
		return nil, err
	}
	d.data.server.Watch(d.committed)
	if table {
		d.data.unsent = "SELECT id FROM " + sqlmarker.DefaultTable + " WHERE state IN (1, 2)"
	} else {
		d.data.other = func() (*modeldb.Server, error) {
			server := modeldb.NewServer(d.data.name, nil)
			server.Watch(d.committed)
			return server, w.migrate(server, statement(orderTable), d.migrate)
		}
	}
	return d, nil
}

func (d *sqlData) migrate(ctx context.Context, db *sql.DB) error {
	s, err := d.store(db, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return s.Migrate(ctx)
}

func (d *sqlData) store(db *sql.DB, logger *slog.Logger) (*sqlmarker.Store, error) {
	return sqlmarker.New(sqlmarker.Config{
		DB: db, Dialect: sqlmarker.PostgreSQL, Producer: d.producer, Logger: logger, Shards: 1 + d.shards(),
	})
}

// shards is the number of shards beyond the first.
func (d *sqlData) shards() int {
	if !d.table {
		return 0
	}
	return 2
}

// committed notes the end of a transaction in the moment of its commit. An order is the business itself, and a
// tombstone says that the business will never commit.
func (d *sqlData) committed(table string, row modeldb.Row) {
	id, _ := row["id"].(string)
	key := d.producer + "/" + id
	var fate faults.Fate
	switch {
	case table == "orders":
		fate = faults.Committed
	case table == sqlmarker.DefaultTable && row["verdict"] == int64(3):
		fate = faults.RolledBack
	default:
		return
	}
	if d.table && fate == faults.Committed {
		d.data.world.Ledger.Accepted(key) // nothing else is to be accepted
	}
	if ended := d.data.world.Ledger.Decide(key, fate); ended != fate && !d.data.world.databases.isLost(key) {
		d.data.world.report("CONTRADICTION %s: its database commits %v after %v", key, fate, ended)
	}
}

// markers implements business.
func (d *sqlData) markers() (keys []string) {
	const left = "SELECT id FROM " + sqlmarker.DefaultTable + " WHERE producer = $1 AND verdict = 2 AND cleaned_at IS NULL"
	for _, row := range d.data.rows(left, d.producer) {
		keys = append(keys, d.producer+"/"+textOf(row[0]))
	}
	return keys
}

// sqlProcess is the way of one process to its database.
type sqlProcess struct {
	address *modeldb.Address
	db      *sql.DB
	store   *sqlmarker.Store
	// relaying ends with the relay.
	relaying sync.WaitGroup
}

// poolSize is more than the SDK needs to make progress, and few enough to be used up.
const poolSize = 12

func (d *sqlDatabase) openPool() *sqlProcess {
	p := &sqlProcess{address: d.address()}
	p.db = d.world.databases.open(p.address)
	p.db.SetMaxOpenConns(poolSize)
	p.db.SetConnMaxIdleTime(time.Minute)
	return p
}

// kill ends the connections, as the end of the process does.
func (p *sqlProcess) kill() {
	if p != nil {
		p.address.Kill(0)
	}
}

func (p *sqlProcess) close() {
	if p != nil {
		p.relaying.Wait()
		_ = p.db.Close() // a pool that closes loses nothing
	}
}
