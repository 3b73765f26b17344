package simulation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/faults"
)

// producing is a producer of a world.
type producing interface {
	// name is the producer's name in the ledger.
	name() string
	// act does the business of a message, and returns when the producer has nothing more to do about it.
	act(id string)
	// markers lists the messages whose markers are still there.
	markers() []string
	// restart ends the producer's process as kill -9 does, and starts another one. Its database stays.
	restart()
	close()
}

// coordinators are the addresses of all coordinators, for producer.Config.
func (w *World) coordinators() string {
	var all []string
	for _, n := range w.Nodes {
		all = append(all, n.Address)
	}
	return strings.Join(all, ",")
}

// business is what a producer does for a message, with its data, which outlive the producer's processes.
type business interface {
	// open returns the markers of a process, and serve is called when the process has its SDK.
	open(run *serviceRun) (marker.Store, error)
	serve(run *serviceRun) error
	// send sends the message, and does its business.
	send(s *service, run *serviceRun, m producer.Message) error
	// markers lists the messages whose markers are still there.
	markers() []string
}

// markingPrefix begins the names of producers with markers in SQL.
const markingPrefix = "marking"

// kinds are the producers with the SDK. The first three have their data in memory: one is called by gRPC, one attends,
// and one is called by HTTP. Two have markers in SQL, and the last has a local message table.
var kinds = []string{"called", "attending", webName, markingPrefix, markingPrefix + "-attending", queueingName}

// webName is the producer with callbacks by HTTP.
const webName = "web"

// inMemory says that a producer has its data in memory.
func inMemory(kind string) bool { return slices.Contains(kinds[:3], kind) }

// queueingName is the producer with a local message table, which hands over in no order.
const queueingName = "queueing"

// hasProducer says whether a world has a producer. The first is in each.
func (w *World) hasProducer(kind string) bool {
	return kind == kinds[0] || percent(w.Choices, "has producer "+kind, w.pace.share(50))
}

// startProducers starts the producers that the seed draws.
func (w *World) startProducers() error {
	for i, kind := range kinds {
		if !w.hasProducer(kind) {
			continue
		}
		s := &service{
			world: w, called: kind, place: kind, address: fmt.Sprintf("10.2.0.%d", i+1),
			attends: strings.HasSuffix(kind, "attending"),
		}
		if err := s.openData(); err != nil {
			return err
		}
		if err := s.start(); err != nil {
			return err
		}
		w.producers = append(w.producers, s)
		if !percent(w.Choices, "has twin "+kind, 30) {
			continue
		}
		s.twin = &service{
			world: w, called: kind, place: kind + "-twin", address: fmt.Sprintf("10.2.1.%d", i+1), attends: s.attends,
			data: s.data,
		}
		if err := s.twin.start(); err != nil {
			return err
		}
	}
	if w.outbox != nil {
		w.startInserting()
	}
	if w.hasProducer(directName) {
		if err := w.startDirect(); err != nil {
			return err
		}
	}
	if w.hasProducer(replicatedName) {
		return w.startReplicated()
	}
	return nil
}

// openData makes the data of the producer, in SQL or in memory.
func (s *service) openData() (err error) {
	if !inMemory(s.called) {
		s.data, err = s.world.newSQLData(s.called, s.called == queueingName)
		return err
	}
	memory := newDatabase(s.called, s.world.Ledger)
	s.data, s.world.memories = memory, append(s.world.memories, memory)
	return nil
}

// service is a producer with the SDK.
type service struct {
	world           *World
	called, address string
	// place is the name, and that of the place among the replicas.
	place   string
	attends bool
	data    business
	// twin is another process with the same data; nil: there is none.
	twin *service
	// restarts is held during a restart.
	restarts sync.Mutex

	mu         sync.Mutex
	generation int
	run        *serviceRun
}

// serviceRun is one process of a service.
type serviceRun struct {
	host   *Host
	sdk    *producer.Producer
	server *grpc.Server
	web    *http.Server
	// sql is the process's way to its database; nil for data in memory.
	sql *sqlProcess
	// life ends with the process: a business that waits goes no further.
	life context.Context //nolint:containedctx // the process has one life
	end  context.CancelFunc
}

func (s *service) name() string { return s.called }

func (s *service) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	host := s.world.Network.Host(fmt.Sprintf("%s.%d", s.place, s.generation), s.address)
	s.generation++
	run := &serviceRun{host: host}
	run.life, run.end = context.WithCancel(s.world.life)
	options := []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return host.Dial(ctx, "tcp", addr)
	})}
	markers, err := s.data.open(run)
	if err != nil {
		return err
	}
	config := producer.Config{
		Name: s.called, Coordinator: s.world.coordinators(), Markers: markers,
		Logger: slog.New(s.world.log.handler(host.name)),
	}
	serves := s.address + ":7000"
	switch {
	case s.attends:
		options = append(options, grpc.WithStreamInterceptor(s.observeStream))
	case s.called == webName:
		config.CallbackTarget = "http://" + serves + httpPath
	default:
		config.CallbackTarget = serves
	}
	config.Coordinators.Anyone = config.CallbackTarget != ""
	if rest := s.world.drawn.rest; rest > 0 {
		alive := keepalive.ClientParameters{Time: time.Duration(rest) * time.Minute}
		options = append(options, grpc.WithKeepaliveParams(alive))
	}
	config.DialOptions = options
	if run.sdk, err = producer.New(config); err != nil {
		return err
	}
	if err := s.data.serve(run); err != nil {
		return err
	}
	s.run = run
	if s.attends {
		return nil
	}
	listener, err := host.Listen(context.Background(), "tcp", serves)
	if err != nil {
		return err
	}
	if s.called == webName {
		s.serveHTTP(run, listener)
		return nil
	}
	run.server = grpc.NewServer(grpc.UnaryInterceptor(s.answer))
	run.sdk.Register(run.server)
	s.world.goInBackground(func() { _ = run.server.Serve(listener) })
	return nil
}

func (s *service) current() *serviceRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run
}

// restart implements producing.
func (s *service) restart() {
	s.restarts.Lock()
	defer s.restarts.Unlock()
	old := s.current()
	old.host.Kill()
	old.sql.kill()
	s.world.goInBackground(func() { old.close() })
	if err := s.start(); err != nil {
		s.world.report("producer %s does not start: %v", s.called, err)
	}
}

func (s *service) close() {
	s.current().close()
	if s.twin != nil {
		s.twin.close()
	}
}

func (r *serviceRun) close() {
	r.end()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = r.sdk.Close(ctx) // what the SDK leaves behind is what a killed process leaves
	if r.server != nil {
		r.server.Stop()
	}
	if r.web != nil {
		_ = r.web.Close() // what is open is cut
	}
	r.sql.close()
}

// answer notes the definite verdicts of the producer, and lets faults change what becomes of an answer.
func (s *service) answer(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	return s.world.faulty.answering(ctx, s.called, in, func(ctx context.Context, in any) (any, error) {
		out, err := next(ctx, in)
		if r, ok := out.(*pb.ConfirmResponse); ok && err == nil {
			s.said(r)
		}
		return out, err
	})
}

func (s *service) said(r *pb.ConfirmResponse) {
	for _, c := range r.GetConfirmations() {
		switch c.GetVerdict() {
		case pb.Verdict_VERDICT_COMMITTED:
			s.world.Ledger.Said(s.called+"/"+c.GetId(), faults.Committed)
		case pb.Verdict_VERDICT_ROLLED_BACK:
			s.world.Ledger.Said(s.called+"/"+c.GetId(), faults.RolledBack)
		}
	}
}

// act implements producing.
func (s *service) act(id string) {
	w := s.world
	key := s.called + "/" + id
	body := bytes.Repeat([]byte(id+" "), 1+w.Choices.Intn(key+" size", 200))
	headers := map[string]string{"order": id}
	m := producer.Message{ID: id, Exchange: exchange, RoutingKey: s.called, Headers: headers, Body: body}
	switch {
	case s.called != queueingName && percent(w.Choices, key+" keyed", 30):
		m.OrderingKey = fmt.Sprint("key-", w.Choices.Intn(key+" of key", 3))
		w.Ledger.Ordered(key, s.called+"/"+m.OrderingKey)
	case percent(w.Choices, key+" delayed", 10):
		m.Delay = w.pace.long(w.Choices, key+" delay", 0, time.Minute)
	}
	w.Ledger.Sending(key, faults.NewContent(exchange, s.called, headers, body))
	if s.twin == nil || !percent(w.Choices, key+" runs twice", 40) {
		w.believe(key, s.send(key, m))
		return
	}
	var both sync.WaitGroup
	for _, one := range []*service{s, s.twin} {
		both.Go(func() {
			_ = sleep(w.life, within(w.Choices, key+" of "+one.place, 0, time.Second))
			_ = one.send(key, m)
		})
	}
	both.Wait()
}

// send sends a message in the running process.
func (s *service) send(key string, m producer.Message) error {
	w := s.world
	err := s.data.send(s, s.current(), m)
	w.Ledger.Noted(key, "producer", fmt.Sprintf("Send of %s returns: %v", s.place, err))
	if err == nil {
		w.Ledger.SendReturned(key)
	}
	if err != nil && !errors.Is(err, errRefused) && !errors.Is(err, producer.ErrOutcomeUnknown) {
		w.note("%s: Send returns %v", key, err)
	}
	return err
}

// believe holds the SDK to its word: what it calls not committed may never be committed, and nil is a commit.
func (w *World) believe(key string, err error) {
	if errors.Is(err, producer.ErrNotCommitted) && !errors.Is(err, producer.ErrAlreadyCommitted) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.notCommitted = append(w.notCommitted, key)
	}
}

func (s *service) markers() []string { return s.data.markers() }

// produce does the business of all messages, and returns when all are done.
func (w *World) produce() {
	most := cmp.Or(w.options.Messages, w.pace.messages(w.Choices))
	span := w.pace.span(w.Choices)
	var all sync.WaitGroup
	for i := range most {
		p := w.producers[i%len(w.producers)]
		id := fmt.Sprintf("%04d", i)
		all.Go(func() {
			time.Sleep(within(w.Choices, "start of "+id, 0, span))
			p.act(id)
		})
	}
	all.Wait()
}
