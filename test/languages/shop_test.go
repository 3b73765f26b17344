package languages

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// shop is a producer with proxies on its ways to the coordinator and to its database, and on the way back.
type shop struct {
	// T is the test of the check that runs.
	*testing.T
	language
	// end is closed after the last check.
	end         <-chan struct{}
	coordinator *coordinator
	calls, asks *wire.Posts
	way         *wire.Proxy
	listen      string
	db          *sql.DB
	markers     *sqlmarker.Store
	channel     *amqp.Channel
	// run and environment start the program.
	run, environment []string
	program          *program
	// delivered are the delivered orders so far.
	delivered map[string]string
	copies    map[string]int

	mu sync.Mutex
	// at maps a call about a message to a fault, by method, phase and id.
	at map[string]func() wire.Act
}

func openShop(t *testing.T, c *coordinator, l language) *shop {
	t.Helper()
	database := l.kind.open(t)
	s := &shop{
		T: t, language: l, end: t.Context().Done(), coordinator: c,
		listen: servers.Addresses(t, 1)[0], at: map[string]func() wire.Act{},
		delivered: map[string]string{}, copies: map[string]int{},
		calls: wire.HTTP(t, c.address), way: wire.SQL(t, hostOf.FindString(database.DSN)),
	}
	s.asks, s.run = wire.HTTP(t, s.listen), l.command(t)
	s.calls.On(s.hook)
	s.asks.On(s.hook)
	s.environment = []string{
		"DATABASE_URL=" + l.kind.url(database.DSN, s.way.Addr), "COORDINATOR=http://" + s.calls.Addr,
		"MSGHANDLER_TOKEN_FILE=" + c.caller,
		"LISTEN=" + s.listen, "CALLBACK_URL=http://" + s.asks.Addr, "COORDINATOR_TOKENS=" + c.tokens,
	}
	s.openDatabase(database)
	conn, err := amqp.Dial(c.amqp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if s.channel, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.channel.QueueDeclare(l.name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	s.start()
	return s
}

// openDatabase creates the table of the markers as "msghandler outbox ddl markers" prints it.
func (s *shop) openDatabase(d *servers.Database) {
	s.Helper()
	var err error
	if s.db, err = sql.Open(d.Driver, d.DSN); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.db.Close() })
	s.markers, err = sqlmarker.New(sqlmarker.Config{DB: s.db, Dialect: s.kind.dialect, Producer: s.name})
	if err != nil {
		s.Fatal(err)
	}
	var ddl, errs bytes.Buffer
	printing := commandline.Process{
		Args: []string{"outbox", "ddl", "markers", "--dialect", s.kind.dialect.String()},
		In:   strings.NewReader(""), Out: &ddl, Err: &errs,
	}
	if status := cli.Run(s.Context(), printing); status != 0 {
		s.Fatal(errs.String())
	}
	for statement := range strings.SplitSeq(strings.TrimSuffix(ddl.String(), ";\n"), ";\n") {
		s.exec(statement)
	}
}

// start starts the program, for the first time or after it was killed.
func (s *shop) start() {
	s.Helper()
	s.program = start(s.T, s.name, s.environment, s.run)
	s.program.says("ready\n")
}

// on has something happen to a call about a message from now on. call is a method and a phase.
func (s *shop) on(call, id string, do func() wire.Act) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[call+" "+id] = do
}

func (s *shop) hook(e wire.Event) wire.Act {
	for _, m := range e.Messages {
		_, id, _ := strings.Cut(m.Key, "/")
		s.mu.Lock()
		do := s.at[fmt.Sprintf("%s %v %s", e.Name, e.Phase, id)]
		s.mu.Unlock()
		if do != nil {
			return do()
		}
	}
	return wire.Pass
}

// holds holds a call, once. reached is closed when the call is there; the call goes on, or is lost, with what is sent
// to act.
func (s *shop) holds(call, id string) (reached <-chan struct{}, act chan<- wire.Act) {
	hold, reached, act := s.holding()
	s.on(call, id, hold)
	return reached, act
}

// holdsCommit holds the COMMIT of an order, by its id: a coordinator that cleans up commits beside it.
func (s *shop) holdsCommit(phase wire.Phase, id string) (reached <-chan struct{}, act chan<- wire.Act) {
	hold, reached, act := s.holding()
	s.on("SendHalfMessage after", id, func() wire.Act {
		s.way.On(func(e wire.Event) wire.Act {
			if e.Phase != phase || !bytes.Contains(e.Transaction, []byte(id)) {
				return wire.Pass
			}
			s.way.On(nil)
			return hold()
		})
		return wire.Pass
	})
	return reached, act
}

// holding makes a hook that holds the first thing that it is called for.
func (s *shop) holding() (hold func() wire.Act, reached <-chan struct{}, act chan<- wire.Act) {
	var first atomic.Bool
	there, fate := make(chan struct{}), make(chan wire.Act, 1)
	return func() wire.Act {
		if !first.CompareAndSwap(false, true) {
			return wire.Pass
		}
		close(there)
		select {
		case act := <-fate:
			return act
		case <-s.end:
			return wire.Cut
		}
	}, there, fate
}

func (s *shop) wait(reached <-chan struct{}, what string) {
	s.Helper()
	select {
	case <-reached:
	case <-time.After(time.Minute):
		s.Fatalf("not within a minute: %s", what)
	}
}

// answer is the answer to a request.
type answer struct {
	status        int
	Stands, Error string
	Confirmations []struct{ ID, Verdict string }
}

// post makes a request to the program. Without a status the program has not answered.
func (s *shop) post(path, authorization, body string) answer {
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, "http://"+s.listen+path,
		strings.NewReader(body))
	if err != nil {
		return answer{Error: err.Error()}
	}
	request.Header.Set("Content-Type", "application/json")
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := (&http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return answer{Error: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	a := answer{status: response.StatusCode}
	if err != nil || json.Unmarshal(text, &a) != nil {
		a.Error = fmt.Sprintf("%v, %s", err, text)
	}
	return a
}

// order places an order. The amount of an order that is to fail is negative.
func (s *shop) order(id string, amount int) answer {
	return s.post("/orders", "", fmt.Sprintf(`{"id": %q, "amount": %d}`, id, amount))
}

// ordering places an order in the background.
func (s *shop) ordering(id string, amount int) <-chan answer {
	done := make(chan answer, 1)
	go func() { done <- s.order(id, amount) }()
	return done
}

func (s *shop) ordered(id string, amount, status int, stands string) {
	s.Helper()
	if a := s.order(id, amount); a.status != status || a.Stands != stands {
		s.Errorf("the order %s is answered %+v, want status %d and %s", id, a, status, stands)
	}
}

// askShop asks as a coordinator does, and returns the verdicts by id.
func (s *shop) askShop(final bool, ids ...string) map[string]string {
	s.Helper()
	a := s.post("/confirm", "Bearer "+token, s.question(final, ids...))
	verdicts := map[string]string{}
	for _, c := range a.Confirmations {
		verdicts[c.ID] = strings.TrimPrefix(c.Verdict, "VERDICT_")
	}
	if a.status != http.StatusOK || len(verdicts) != len(ids) {
		s.Errorf("the question about %d ids is answered %+v", len(ids), a)
	}
	return verdicts
}

func (s *shop) question(final bool, ids ...string) string {
	s.Helper()
	var text bytes.Buffer
	question := map[string]any{"producer": s.name, "ids": ids}
	if final {
		question["final"] = true
	}
	if err := json.NewEncoder(&text).Encode(question); err != nil {
		s.Fatal(err)
	}
	return text.String()
}

// asked demands a verdict about an id.
func (s *shop) asked(final bool, id, want string) {
	s.Helper()
	if got := s.askShop(final, id)[id]; got != want {
		s.Errorf("the question about %s (final: %t) is answered %q, want %s", id, final, got, want)
	}
}

// stands demands the verdict that the SDK reads in the table about an id.
func (s *shop) stands(id, want string) {
	s.Helper()
	found, err := s.markers.Lookup(s.Context(), []string{id}, false)
	if err != nil {
		s.Fatal(err)
	}
	if got := strings.ToUpper(strings.ReplaceAll(fmt.Sprint(found[id]), " ", "_")); got != want {
		s.Errorf("the table says %s about %s, want %s", got, id, want)
	}
}

// marker is the statement by which another replica leaves its marker of an id: 2 committed, 3 rolled back.
func (s *shop) marker(id string, verdict int) string {
	return fmt.Sprintf(`INSERT INTO msghandler_markers (producer, id, verdict, created_at) VALUES ('%s', '%s', %d, 1)`,
		s.name, id, verdict)
}

// count runs a query that counts.
func (s *shop) count(query string) (n int) {
	s.Helper()
	if err := s.db.QueryRowContext(s.Context(), query).Scan(&n); err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s *shop) exec(statement string) {
	s.Helper()
	if _, err := s.db.ExecContext(s.Context(), statement); err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
}

// blocked waits until a transaction waits for a lock.
func (s *shop) blocked() {
	s.Helper()
	servers.Eventually(s, time.Minute, "a transaction waits for a lock", func() bool {
		return s.count(s.kind.waiting) > 0
	})
}

// begin begins a transaction of the test that runs a statement.
func (s *shop) begin(statement string) *sql.Tx {
	s.Helper()
	tx, err := s.db.BeginTx(s.Context(), nil)
	if err == nil {
		_, err = tx.ExecContext(s.Context(), statement)
	}
	if err != nil {
		s.Fatalf("%s: %v", statement, err)
	}
	return tx
}

// settled waits until no message is on its way and every marker has been deleted by the coordinator.
func (s *shop) settled() {
	s.Helper()
	servers.Eventually(s, time.Minute, "no message is on its way, and no marker waits to be deleted", func() bool {
		return s.coordinator.unfinished(s.T, s.name) == 0 &&
			s.count(`SELECT COUNT(*) FROM msghandler_markers WHERE cleaned_at IS NULL`) == 0
	})
}

// balanced demands that the delivered orders are in the end the committed orders, each delivered once.
func (s *shop) balanced() {
	s.Helper()
	s.settled()
	s.takeMessages()
	if committed := s.committed(); !maps.Equal(committed, s.delivered) {
		s.Errorf("committed and delivered differ:\n%v\n%v", committed, s.delivered)
	}
	s.Logf("%d orders committed and delivered", len(s.delivered))
}

// committed are the orders of the database, as they are to be delivered.
func (s *shop) committed() map[string]string {
	s.Helper()
	rows, err := s.db.QueryContext(s.Context(), `SELECT id, amount FROM orders`)
	if err != nil {
		s.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var id string
		var amount int
		if err := rows.Scan(&id, &amount); err != nil {
			s.Fatal(err)
		}
		all[id] = sold(amount, 1)
	}
	if err := rows.Err(); err != nil {
		s.Fatal(err)
	}
	return all
}

// takeMessages takes all messages of the queue.
func (s *shop) takeMessages() {
	s.Helper()
	for {
		got, more, err := s.channel.Get(s.name, true)
		if err != nil {
			s.Fatal(err)
		}
		if !more {
			return
		}
		var order struct {
			ID     string
			Amount int
		}
		if err := json.Unmarshal(got.Body, &order); err != nil || order.ID != got.MessageId || got.AppId != s.name ||
			got.ContentType != "application/json" {
			s.Errorf("delivered %s of %s with %s: %v", got.MessageId, got.AppId, got.Body, err)
		}
		s.copies[order.ID]++
		s.delivered[order.ID] = sold(order.Amount, s.copies[order.ID])
	}
}

func sold(amount, copies int) string {
	return fmt.Sprintf("costs %d, delivered %d times", amount, copies)
}
