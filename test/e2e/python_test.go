package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// pythonQueue is both the name and the queue of examples/python/producer.py.
const pythonQueue = "python-orders"

// pythonShop runs examples/python/producer.py, with a proxy on the way to the coordinator and one on the way back.
type pythonShop struct {
	*world
	calls, asks *wire.Calls
	// program is the shop itself.
	program          string
	listen, database string
	// tokens is the file of the tokens that the shop accepts.
	tokens string
	db     *sql.DB

	mu sync.Mutex
	// at maps a call about a message to a fault, by method, phase and id.
	at map[string]func() wire.Act
	// asked counts down the answers about a message that the coordinator is to have first.
	asked map[string]int
	// enough is closed after these answers.
	enough map[string]chan struct{}
	// calling and dead are where a call at which the shop dies and the test meet.
	calling, dead chan struct{}
}

// The promise "from any language that speaks gRPC", tried: the example of docs/howto/python.md dies and is silent where
// it hurts. Each committed order is delivered, once, and nothing else is delivered.
func TestPythonProducerKeepsTheContract(t *testing.T) {
	s := newPythonShop(t)
	var orders []string
	for i := range 10 {
		orders = append(orders, fmt.Sprintf("paid-%d", i), fmt.Sprintf("declined-%d", i), fmt.Sprintf("silent-%d", i))
		s.on("Submit before", fmt.Sprintf("silent-%d", i), func() wire.Act { return wire.Cut })
	}
	// While the answer to its half message is on its way, an order gets more Confirm calls than an unknown id may get.
	s.untilAsked("late-answer", 4)
	s.dies("Submit before", "killed") // between its commit and its Submit
	first := s.startShop(s.listen, append(orders, "late-answer", "killed")...)
	s.stands(first, "paid-9", "VERDICT_COMMITTED")
	s.stands(first, "declined-9", "failed: CHECK constraint failed: amount > 0")
	s.stands(first, "late-answer", "VERDICT_COMMITTED")
	s.killed(first)

	s.dies("SendHalfMessage after", "vanished") // before its transaction
	second := s.startShop(s.listen, "killed", "vanished")
	s.stands(second, "killed", "VERDICT_COMMITTED")
	s.killed(second)

	third := s.startShop(s.listen)
	s.drained(patience)
	if verdict := s.verdict("vanished"); verdict != pb.Verdict_VERDICT_ROLLED_BACK {
		t.Errorf("the last Confirm call about the vanished order leaves %v in the database", verdict)
	}

	// The other replica knows nothing of an order that a replica is about to commit.
	s.untilAsked("slow", 1)
	answer := make(chan pb.Verdict, 100)
	s.on("SendHalfMessage after", "too-late", func() wire.Act { answer <- s.askShop("too-late"); return wire.Pass })
	s.refusesOnce("unbegun")
	replica := s.startShop(servers.Addresses(t, 1)[0], "slow", "too-late", "vanished", "unbegun", "unbegun")
	s.stands(replica, "too-late", "VERDICT_ROLLED_BACK")
	s.stands(replica, "unbegun", "failed: the disk is full")
	if verdict := <-answer; verdict != pb.Verdict_VERDICT_ROLLED_BACK {
		t.Errorf("the last Confirm call about an order without a row was answered %v", verdict)
	}
	s.stands(replica, "vanished", "VERDICT_ROLLED_BACK")

	err := (shop{Process: replica, callbacks: s.listen}).asks(pythonQueue, "too-late")
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stranger's last Confirm call gets %v", err)
	}
	s.tally()
	verified, exit := programs.Run(t, "msghandler", []string{
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*", "MSGHANDLER_CALLBACKS_TOKEN_FILE=" + tokenFile(t, otherToken),
	}, "verify-producer", pythonQueue, s.listen)
	if exit != 0 || strings.Contains(verified, "WARN") {
		t.Errorf("verify-producer says (%d):\n%s", exit, verified)
	}
	third.Stop(20 * time.Second)
	replica.Stop(20 * time.Second)
}

func newPythonShop(t *testing.T) *pythonShop {
	t.Helper()
	program := installPythonShop(t)
	w := newWorld(t)
	tokens := tokenFile(t, "# of the coordinators", shopToken, otherToken)
	w.startCoordinators(1, "MSGHANDLER_CALLBACKS_TOKEN_FILE="+tokens, "MSGHANDLER_CONFIRM_AFTER=200ms",
		"MSGHANDLER_CONFIRM_BACKOFF=100ms", "MSGHANDLER_CONFIRM_ATTEMPTS=2")
	s := &pythonShop{
		world: w, program: program, tokens: tokens, listen: servers.Addresses(t, 1)[0],
		database: filepath.Join(w.dir, "python.db"),
		at:       map[string]func() wire.Act{}, asked: map[string]int{}, enough: map[string]chan struct{}{},
		calling: make(chan struct{}, 1), dead: make(chan struct{}, 1),
	}
	s.calls, s.asks = wire.GRPC(t, w.coordinators[0].grpc), wire.GRPC(t, s.listen)
	s.calls.On(s.hook)
	s.asks.On(s.hook)
	if _, err := w.channel().QueueDeclare(pythonQueue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.db, err = sql.Open("sqlite", s.database+"?_pragma=busy_timeout(5000)"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.db.Close() })
	return s
}

// installPythonShop makes a program that runs producer.py on stubs made as in docs/howto/python.md.
func installPythonShop(t *testing.T) (file string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	python, stubs := servers.Python(t, "grpc", "grpc_tools"), t.TempDir()
	cmd := exec.Command(python, "-m", "grpc_tools.protoc", "-I", "proto", "--python_out="+stubs,
		"--grpc_python_out="+stubs,
		"proto/msghandler/v1/msghandler.proto")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make the stubs: %v\n%s", err, out)
	}
	program := fmt.Sprintf("#!/bin/sh\nPYTHONPATH='%s' exec '%s' '%s' \"$@\"\n",
		stubs, python, filepath.Join(root, "examples", "python", "producer.py"))
	file = filepath.Join(t.TempDir(), "python-shop")
	if err := os.WriteFile(file, []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

// startShop starts the example on orders, and waits until the shop answers Confirm calls. Calls about its orders come
// through the proxy.
func (s *pythonShop) startShop(listen string, ids ...string) *programs.Process {
	s.t.Helper()
	var lines strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&lines, `{"id": "%s", "amount": %d}`+"\n", id, amountOf(id))
	}
	file := filepath.Join(s.t.TempDir(), "orders")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		s.t.Fatal(err)
	}
	p := programs.StartCommand(s.t, nil, exec.Command(s.program, "--coordinator", s.calls.Addr, "--listen", listen,
		"--target", s.asks.Addr, "--coordinator-tokens", s.tokens, "--database", s.database, file))
	p.Says("ready\n", time.Minute)
	return p
}

// amountOf is the price of an order; the price is never negative.
func amountOf(id string) int {
	if strings.HasPrefix(id, "declined") {
		return -1
	}
	return len(id)
}

// on has something happen to a call about a message from now on. call is a method and a phase.
func (s *pythonShop) on(call, id string, do func() wire.Act) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at[call+" "+id] = do
}

func (s *pythonShop) hook(e wire.Event) wire.Act {
	for _, m := range e.Messages {
		_, id, _ := strings.Cut(m.Key, "/")
		if e.Name == "Confirm" && e.Phase == wire.Reply {
			s.count(id)
		}
		s.mu.Lock()
		do := s.at[fmt.Sprintf("%s %v %s", e.Name, e.Phase, id)]
		s.mu.Unlock()
		if do != nil {
			return do()
		}
	}
	return wire.Pass
}

func (s *pythonShop) count(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[id]--; s.asked[id] == 0 {
		close(s.enough[id])
	}
}

// untilAsked holds the answers to a half message until the coordinator has had n answers about it.
func (s *pythonShop) untilAsked(id string, n int) {
	enough := make(chan struct{})
	s.mu.Lock()
	s.asked[id], s.enough[id] = n, enough
	s.mu.Unlock()
	s.on("SendHalfMessage after", id, func() wire.Act {
		select {
		case <-enough:
		case <-s.t.Context().Done():
		}
		return wire.Pass
	})
}

// refusesOnce has the database refuse the marker of an order until the order is sent again, and hides the order from
// the coordinator meanwhile.
func (s *pythonShop) refusesOnce(id string) {
	s.exec(`CREATE TRIGGER full BEFORE INSERT ON markers WHEN NEW.verdict = 2 AND NEW.id = '` + id + `'
		BEGIN SELECT RAISE(ABORT, 'the disk is full'); END`)
	s.on("Confirm before", id, func() wire.Act { return wire.Cut })
	var sent atomic.Int32
	s.on("SendHalfMessage after", id, func() wire.Act {
		if sent.Add(1) == 2 {
			s.exec(`DROP TRIGGER full`)
			s.on("Confirm before", id, nil)
		}
		return wire.Pass
	})
}

func (s *pythonShop) exec(statement string) {
	if _, err := s.db.ExecContext(s.t.Context(), statement); err != nil {
		s.t.Errorf("%s: %v", statement, err)
	}
}

// dies has the shop killed at that call, once. killed does the killing.
func (s *pythonShop) dies(call, id string) {
	s.on(call, id, func() wire.Act {
		s.on(call, id, nil)
		s.calling <- struct{}{}
		select {
		case <-s.dead:
		case <-s.t.Context().Done():
		}
		return wire.Cut
	})
}

// killed waits for the call at which the shop is to die, and kills the shop.
func (s *pythonShop) killed(p *programs.Process) {
	s.t.Helper()
	select {
	case <-s.calling:
		p.Kill()
		s.dead <- struct{}{}
	case <-time.After(patience):
		s.t.Fatal("the shop has not called")
	}
}

// askShop makes a last Confirm call to the shop, as a coordinator does.
func (s *pythonShop) askShop(id string) pb.Verdict {
	conn, err := grpc.NewClient(s.listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return pb.Verdict_VERDICT_UNSPECIFIED
	}
	defer conn.Close()
	answer, err := pb.NewProducerServiceClient(conn).Confirm(metadata.AppendToOutgoingContext(s.t.Context(),
		"authorization", "Bearer "+shopToken),
		&pb.ConfirmRequest{Producer: pythonQueue, Ids: []string{id}, Final: true})
	if err != nil || len(answer.GetConfirmations()) != 1 {
		return pb.Verdict_VERDICT_UNSPECIFIED
	}
	return answer.GetConfirmations()[0].GetVerdict()
}

// stands waits until the shop knows an order's outcome, and demands this outcome.
func (s *pythonShop) stands(p *programs.Process, id, want string) {
	s.t.Helper()
	var said string
	servers.Eventually(s.t, patience, "the shop reports "+id, func() bool {
		output, err := os.ReadFile(p.Log)
		if err != nil {
			s.t.Fatal(err)
		}
		_, after, found := strings.Cut("\n"+string(output), "\n"+id+" ")
		var whole bool
		said, _, whole = strings.Cut(after, "\n")
		return found && whole
	})
	if said != want {
		s.t.Errorf("of %s the shop says %q, want %q", id, said, want)
	}
}

// verdict is the verdict in the shop's database about a message, unset where there is none.
func (s *pythonShop) verdict(id string) (verdict pb.Verdict) {
	s.t.Helper()
	row := s.db.QueryRowContext(s.t.Context(), `SELECT COALESCE(MAX(verdict), 0) FROM markers WHERE id = ?`, id)
	if err := row.Scan(&verdict); err != nil {
		s.t.Fatal(err)
	}
	return verdict
}

// tally demands that in the end the delivered orders are the committed orders, each delivered once, and that nothing
// is left.
func (s *pythonShop) tally() {
	s.t.Helper()
	s.drained(patience)
	committed := s.committed()
	delivered := s.delivered()
	if !maps.Equal(committed, delivered) {
		s.t.Errorf("committed and delivered differ:\n%v\n%v", committed, delivered)
	}
	for _, id := range []string{"paid-0", "silent-0", "silent-9", "late-answer", "killed", "unbegun"} {
		if committed[id] == "" {
			s.t.Errorf("%s has not committed", id)
		}
	}
	servers.Eventually(s.t, patience, "no marker waits to be cleaned", func() bool {
		var left int
		row := s.db.QueryRowContext(s.t.Context(), `SELECT COUNT(*) FROM markers WHERE cleaned_at IS NULL`)
		if err := row.Scan(&left); err != nil {
			s.t.Fatal(err)
		}
		return left == 0
	})
	s.onlyReceipts()
	s.t.Logf("%d orders committed and delivered: %v", len(committed), slices.Sorted(maps.Keys(committed)))
}

// committed are the orders of the shop's database, as they are to be delivered.
func (s *pythonShop) committed() map[string]string {
	s.t.Helper()
	rows, err := s.db.QueryContext(s.t.Context(), `SELECT id, amount FROM orders`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	all := map[string]string{}
	for rows.Next() {
		var id string
		var amount int
		if err := rows.Scan(&id, &amount); err != nil {
			s.t.Fatal(err)
		}
		all[id] = sold(amount, 1)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// delivered takes all messages of the queue.
func (s *pythonShop) delivered() map[string]string {
	s.t.Helper()
	channel := s.channel()
	all, copies := map[string]string{}, map[string]int{}
	for {
		got, ok, err := channel.Get(pythonQueue, true)
		if err != nil {
			s.t.Fatal(err)
		}
		if !ok {
			return all
		}
		all[got.MessageId] = s.read(got, copies)
	}
}

func (s *pythonShop) read(got amqp.Delivery, copies map[string]int) string {
	s.t.Helper()
	var order struct {
		ID     string
		Amount int
	}
	if err := json.Unmarshal(got.Body, &order); err != nil || order.ID != got.MessageId || got.AppId != pythonQueue {
		s.t.Errorf("delivered %s of %s with %s: %v", got.MessageId, got.AppId, got.Body, err)
	}
	copies[order.ID]++
	return sold(order.Amount, copies[order.ID])
}

func sold(amount, copies int) string {
	return fmt.Sprintf("costs %d, delivered %d times", amount, copies)
}
