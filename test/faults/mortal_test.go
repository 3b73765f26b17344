package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
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
	markerredis "github.com/msghandler/msghandler/producer/marker/redis"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// mortalVariable holds what makes this binary a producer instead of a test.
const mortalVariable = "FAULTS_PRODUCER"

// A producer's life, step by step. At each of them it can die.
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

// mortal is a producer that is a process of its own, and what it is to do.
type mortal struct {
	Name, Journal, Listen, Coordinators string
	// Redis holds its markers; without one they are part of the transaction.
	Redis string
	// Step is where it dies by kill -9, when it passes it for the Nth time. Without one it only ends what its earlier
	// lives began.
	Step string
	N    int

	journal *journal
	sdk     *producer.Producer
	mu      sync.Mutex
}

// liveAs is what the binary does as a producer; it returns when the test has ended.
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

// pass is passed at each step. Only one of them is the last.
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
		Name: m.Name, Coordinator: m.Coordinators, CallbackTarget: m.Listen, Markers: m.journal, Logger: quiet(),
		DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(m.calls())},
	}
	if m.Redis != "" {
		client := goredis.NewClient(&goredis.Options{Addr: m.Redis, ContextTimeoutEnabled: true})
		if config.Markers, err = markerredis.New(markerredis.Config{Client: client, Producer: m.Name}); err != nil {
			return err
		}
		config.Resolve = m.resolve
	}
	config.Markers = passingMarkers{config.Markers, m}
	if m.sdk, err = producer.New(config); err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(m.called))
	m.sdk.Register(server)
	go func() { _ = server.Serve(listener) }()
	return nil
}

// resolve looks at the business data, where the markers are not part of them.
func (m *mortal) resolve(ctx context.Context, id string, final bool) (marker.Verdict, error) {
	found, err := m.journal.Lookup(ctx, []string{id}, final)
	return found[id], err
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

// called sees what the coordinators call, and notes what they are told.
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
			switch c.GetVerdict() {
			case pb.Verdict_VERDICT_COMMITTED:
				m.journal.note(lineSaid, c.GetId(), wordCommitted)
			case pb.Verdict_VERDICT_ROLLED_BACK:
				m.journal.note(lineSaid, c.GetId(), wordRolledBack)
			}
		}
	}
	return out, err
}

// live takes up again every other business that an earlier life has left open. Then it begins new ones until it dies;
// without a step to die at it says that nothing new comes.
func (m *mortal) live() {
	begun := 0
	var running sync.WaitGroup
	for _, l := range m.journal.lines {
		if l.what != lineSending {
			continue
		}
		n, _ := strconv.Atoi(l.id)
		begun = max(begun, n)
		if n%2 == 0 && m.journal.fate(l.id) == Undecided {
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
	message := producer.Message{ID: id, Exchange: exchange, RoutingKey: m.Name, Body: mortalBody(id)}
	err := m.sdk.Send(context.Background(), message, func(context.Context) error { return m.business(id) })
	for _, usual := range []error{
		nil, errRefused, producer.ErrOutcomeUnknown, producer.ErrAlreadyCommitted, producer.ErrRolledBack,
	} {
		if errors.Is(err, usual) {
			return
		}
	}
	m.journal.note(lineSurprised, id, strings.ReplaceAll(err.Error(), "\n", " "))
}

// business is the local transaction. It recognises what an earlier life has committed.
func (m *mortal) business(id string) error {
	m.journal.note(lineAccepted, id, "")
	m.pass(beforeBusiness)
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	way := h.Sum32() % 10
	switch way {
	case 8:
		return errRefused
	case 9: // breaks off
		return producer.ErrOutcomeUnknown
	}
	if m.journal.end(id, Committed, func() { m.pass(insideBusiness) }) != Committed {
		return errRefused
	}
	m.pass(afterCommit)
	if way >= 6 { // commits in silence
		return producer.ErrOutcomeUnknown
	}
	return nil
}
