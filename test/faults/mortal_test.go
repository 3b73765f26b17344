package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/redis/redismarker"
)

// mortalVariable makes this binary a producer instead of a test, and holds its task.
const mortalVariable = "FAULTS_PRODUCER"

// A producer's life, step by step. The producer can die at each step.
const (
	beforeSend      = "before SendHalfMessage leaves"
	beforeAnswer    = "before SendHalfMessage answers"
	beforeBusiness  = "before its transaction"
	insideBusiness  = "inside its transaction"
	afterCommit     = "after the commit, before the marker"
	afterMarker     = "after the marker, before Submit"
	afterSubmit     = "after Submit"
	beforeConfirm   = "asked by Confirm"
	answeringOfIt   = "answering Confirm"
	beforeForget    = "asked by DeleteBusiness"
	answeringForget = "in DeleteBusiness, the markers deleted"
)

var steps = []string{
	beforeSend, beforeAnswer, beforeBusiness, insideBusiness, afterCommit, afterMarker, afterSubmit,
	beforeConfirm, answeringOfIt, beforeForget, answeringForget,
}

// mortal is a producer in a process of its own, and its task.
type mortal struct {
	Name, Journal, Listen, Coordinators string
	// Database holds its orders, and the markers in their transactions. Without a database the journal holds the
	// business, and Redis holds the markers.
	Database *database
	Redis    string
	// HTTP says that the coordinators call by HTTP.
	HTTP bool
	// Step is where the producer dies by kill -9, at the Nth pass. Without a step the producer only ends the businesses
	// of its earlier lives.
	Step string
	N    int

	journal *journal
	store   *sqlmarker.Store
	markers marker.Store
	sdk     *producer.Producer
	mu      sync.Mutex
}

// liveAs runs the binary as a producer, and returns when the test has ended.
func liveAs(config string) error {
	m := &mortal{}
	if err := json.Unmarshal([]byte(config), m); err != nil {
		return err
	}
	var err error
	if m.journal, err = openJournal(m.Journal); err != nil {
		return err
	}
	if err := m.serve(); err != nil {
		return err
	}
	go m.live()
	_, err = io.Copy(io.Discard, os.Stdin) // until the test ends
	return err
}

// pass is called at each step. Only one of the steps is the last.
func (m *mortal) pass(step string) {
	if step != m.Step {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.N--; m.N == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (m *mortal) serve() error {
	listener, err := net.Listen("tcp", m.Listen)
	if err != nil {
		return err
	}
	config := producer.Config{
		Name: m.Name, Coordinator: m.Coordinators, CallbackTarget: m.target(), Logger: quiet(),
		Coordinators: producer.Coordinators{Anyone: true},
		DialOptions:  []grpc.DialOption{grpc.WithUnaryInterceptor(m.calls())},
	}
	if m.Database != nil {
		err = m.openDatabase()
	} else {
		config.Resolve = m.resolve
		err = m.openRedis()
	}
	if err != nil {
		return err
	}
	config.Markers = passingMarkers{m.markers, m}
	if m.sdk, err = producer.New(config); err != nil {
		return err
	}
	if m.HTTP {
		server := &http.Server{Handler: http.StripPrefix("/msg", m.calledHTTP(m.sdk.HTTPHandler())), ReadTimeout: time.Minute}
		go func() { _ = server.Serve(listener) }()
		return nil
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(m.called))
	m.sdk.Register(server)
	go func() { _ = server.Serve(listener) }()
	return nil
}

// target is where the coordinators call.
func (m *mortal) target() string {
	if m.HTTP {
		return "http://" + m.Listen + "/msg"
	}
	return m.Listen
}

func (m *mortal) openDatabase() error {
	db, err := m.Database.open(context.Background(), orderTable)
	if err != nil {
		return err
	}
	m.store, err = sqlmarker.New(sqlmarker.Config{
		DB: db, Dialect: m.Database.Dialect, Producer: m.Name, LockTimeout: lockTimeout,
	})
	if err != nil {
		return err
	}
	m.markers = m.store
	return m.store.Migrate(context.Background())
}

func (m *mortal) openRedis() (err error) {
	client := goredis.NewClient(&goredis.Options{Addr: m.Redis, ContextTimeoutEnabled: true})
	m.markers, err = redismarker.New(redismarker.Config{Client: client, Producer: m.Name})
	return err
}

// resolve looks at the business data, where the markers are not part of them. The last Confirm call plants the
// tombstone.
func (m *mortal) resolve(_ context.Context, id string, final bool) (marker.Verdict, error) {
	fate := m.journal.fate(id)
	if fate == Undecided && final {
		fate = m.journal.ended(id, RolledBack)
	}
	return verdictOf(fate), nil
}

// open says whether an id's transaction has not ended.
func (m *mortal) open(id string) (bool, error) {
	if m.store == nil {
		return m.journal.fate(id) == Undecided, nil
	}
	found, err := m.store.Lookup(context.Background(), []string{id}, false)
	return !found[id].Definite(), err
}

// passingMarkers can die when a marker is left.
type passingMarkers struct {
	marker.Store
	m *mortal
}

func (p passingMarkers) Put(
	ctx context.Context, ids []string, v marker.Verdict,
) (map[string]marker.Verdict, error) {
	standing, err := p.Store.Put(ctx, ids, v)
	p.m.pass(afterMarker)
	return standing, err
}

// calls sees what the SDK calls.
func (m *mortal) calls() grpc.UnaryClientInterceptor {
	return func(
		ctx context.Context, method string, in, out any, conn *grpc.ClientConn, next grpc.UnaryInvoker,
		options ...grpc.CallOption,
	) error {
		sends := method == pb.MessageHandlerService_SendHalfMessages_FullMethodName
		if sends {
			m.pass(beforeSend)
		}
		err := next(ctx, method, in, out, conn, options...)
		switch {
		case sends:
			m.pass(beforeAnswer)
		case method == pb.MessageHandlerService_SubmitAll_FullMethodName:
			m.pass(afterSubmit)
		}
		return err
	}
}

// called sees the coordinators' calls, and notes the answers.
func (m *mortal) called(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	_, asks := in.(*pb.ConfirmRequest)
	if asks {
		m.pass(beforeConfirm)
	} else {
		m.pass(beforeForget)
	}
	out, err := next(ctx, in)
	if !asks {
		m.pass(answeringForget)
		return out, err
	}
	m.pass(answeringOfIt)
	if err == nil {
		for _, c := range out.(*pb.ConfirmResponse).GetConfirmations() {
			m.said(c.GetId(), c.GetVerdict())
		}
	}
	return out, err
}

// said notes a definite answer.
func (m *mortal) said(id string, verdict pb.Verdict) {
	switch verdict {
	case pb.Verdict_VERDICT_COMMITTED:
		m.journal.note(lineSaid, id, wordCommitted)
	case pb.Verdict_VERDICT_ROLLED_BACK:
		m.journal.note(lineSaid, id, wordRolledBack)
	}
}

// calledHTTP is called, for calls by HTTP.
func (m *mortal) calledHTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before, answering := beforeForget, answeringForget
		if r.URL.Path == "/confirm" {
			before, answering = beforeConfirm, answeringOfIt
		}
		m.pass(before)
		out := httptest.NewRecorder()
		next.ServeHTTP(out, r)
		m.pass(answering)
		var answer struct {
			Confirmations []struct{ ID, Verdict string }
		}
		if out.Code == http.StatusOK && json.Unmarshal(out.Body.Bytes(), &answer) == nil {
			for _, c := range answer.Confirmations {
				m.said(c.ID, pb.Verdict(pb.Verdict_value[c.Verdict]))
			}
		}
		maps.Copy(w.Header(), out.Header())
		w.WriteHeader(out.Code)
		_, _ = w.Write(out.Body.Bytes())
	})
}

// live resumes every other business that an earlier life has left open. Then live begins new businesses until the
// process dies; without a step to die at, live reports that no new business comes.
func (m *mortal) live() {
	begun := 0
	var running sync.WaitGroup
	for _, l := range m.journal.lines {
		if l.what != lineSending {
			continue
		}
		n, _ := strconv.Atoi(l.id)
		begun = max(begun, n)
		open, err := m.open(l.id)
		if err != nil {
			m.journal.note(lineSurprised, l.id, err.Error())
		}
		if n%2 == 0 && open {
			running.Go(func() { m.send(l.id) })
		}
	}
	const perSecond = 50
	tick := time.NewTicker(time.Second / perSecond)
	for m.Step != "" {
		begun++
		id := fmt.Sprintf("%06d", begun)
		m.journal.note(lineSending, id, "")
		go m.send(id)
		<-tick.C
	}
	running.Wait()
	m.journal.note(lineSettled, "", "")
}

// mortalBody is the same in each life.
func mortalBody(id string) []byte { return []byte(strings.Repeat("body of "+id+" ", 50)) }

func (m *mortal) send(id string) {
	message := producer.Message{
		ID: id, Exchange: exchange, RoutingKey: m.Name, Headers: headersOf(id), Body: mortalBody(id),
	}
	err := m.sdk.Send(context.Background(), message, func(ctx context.Context) error { return m.business(ctx, message) })
	for _, usual := range []error{
		nil, errRefused, producer.ErrOutcomeUnknown, producer.ErrAlreadyCommitted, producer.ErrRolledBack,
	} {
		if errors.Is(err, usual) {
			return
		}
	}
	m.journal.note(lineSurprised, id, strings.ReplaceAll(err.Error(), "\n", " "))
}

// business is the local transaction. It recognises a commit of an earlier life.
func (m *mortal) business(ctx context.Context, message producer.Message) error {
	m.journal.note(lineAccepted, message.ID, "")
	m.pass(beforeBusiness)
	h := fnv.New32a()
	_, _ = h.Write([]byte(message.ID))
	way := h.Sum32() % 10
	switch way {
	case 8:
		return errRefused
	case 9: // ends without a word
		return producer.ErrOutcomeUnknown
	}
	if err := m.commit(ctx, message); err != nil {
		return err
	}
	m.pass(afterCommit)
	if way >= 6 { // commits in silence
		return producer.ErrOutcomeUnknown
	}
	return nil
}

// commit is the transaction itself.
func (m *mortal) commit(ctx context.Context, message producer.Message) error {
	inside := func() { m.pass(insideBusiness) }
	if m.store != nil {
		return m.store.InTx(message, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, m.Database.says(insertOrder), message.ID)
			inside()
			return err
		})(ctx)
	}
	if m.journal.end(message.ID, Committed, inside) != Committed {
		return errRefused
	}
	return nil
}
