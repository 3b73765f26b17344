package faults

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/redis/redismarker"
	"github.com/msghandler/msghandler/test/servers"
)

const (
	exchange = "faults"
	queue    = "faults.inbox"
)

// errRefused is a business that has certainly not committed.
var errRefused = errors.New("the business refuses")

// user is a producer of the load, with its own entries in the ledger.
type user interface {
	// act does one business in one of the ways.
	act(ctx context.Context, id string, random *rand.Rand)
	// surprises are unexpected observations.
	surprises() []string
	// marked lists the messages whose markers are still there.
	marked(ctx context.Context) ([]string, error)
}

// witness notes the acts, the answers and the observations of its producer.
type witness struct {
	name   string
	ledger *Ledger
	// open says that the producer cannot make a transaction fail, so that its last answer may be UNKNOWN.
	open bool
	// once says that the producer repeats no id.
	once bool
	// to is where its messages go.
	to destination

	mu   sync.Mutex
	seen []string
}

func (w *witness) called() string { return w.name }

func (w *witness) key(id string) string { return w.name + "/" + id }

// observe notes every definite verdict of this producer.
func (w *witness) observe(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	out, err := next(ctx, in)
	if r, ok := out.(*pb.ConfirmResponse); ok && err == nil {
		w.said(r)
	}
	return out, err
}

// said notes the definite verdicts of an answer.
func (w *witness) said(r *pb.ConfirmResponse) {
	for _, c := range r.GetConfirmations() {
		switch c.GetVerdict() {
		case pb.Verdict_VERDICT_COMMITTED:
			w.ledger.Said(w.key(c.GetId()), Committed)
		case pb.Verdict_VERDICT_ROLLED_BACK:
			w.ledger.Said(w.key(c.GetId()), RolledBack)
		}
	}
}

// fate looks at the business data; the last Confirm call plants the tombstone, unless open is set.
func (w *witness) fate(id string, final bool) Fate {
	fate := w.ledger.Fate(w.key(id))
	if fate == Undecided && final && !w.open {
		fate = w.ledger.Decide(w.key(id), RolledBack)
	}
	return fate
}

func (w *witness) surprised(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, fmt.Sprintf(format, args...))
}

func (w *witness) surprises() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// deed is one business, and its way.
type deed struct {
	id, key string
	headers map[string]string
	body    []byte
	way     int // of a hundred
	slow    time.Duration
}

func (w *witness) draw(id string, random *rand.Rand) deed {
	size, ways := 1<<10, 100
	if random.IntN(20) == 0 {
		size = 64 << 10
	}
	if w.once {
		ways = repeated
	}
	return deed{
		id: id, key: w.key(id), headers: w.headers(id), body: bodyOf(id, size),
		way: random.IntN(ways), slow: time.Duration(1000+random.IntN(2000)) * time.Millisecond,
	}
}

// headers are the headers of an id's message, as its broker carries them.
func (w *witness) headers(id string) map[string]string {
	if w.to.ascii {
		return asciiHeadersOf(id)
	}
	return headersOf(id)
}

// bodyOf is the body of an id's message, of that size or a little less. Every other id has a body that the store can
// compress.
func bodyOf(id string, size int) []byte {
	seed := sha256.Sum256([]byte(id))
	if seed[0]%2 == 0 {
		return bytes.Repeat([]byte(id+" "), size/(len(id)+1))
	}
	body := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(body) // rand never fails
	return body
}

// headersOf are the headers of an id's message: all kinds of text that AMQP carries. Some ids have none.
func headersOf(id string) map[string]string {
	if id[len(id)-1]%4 == 0 {
		return nil
	}
	return map[string]string{
		"order": id, "Größe, 大きさ": "naïve ✓", "empty": "", "lines": "one\r\n\ttwo \\ \"three\" ",
		"long": strings.Repeat(id, 50), // more than a short string holds
	}
}

// asciiHeadersOf are headers of an id's message that NATS carries.
func asciiHeadersOf(id string) map[string]string {
	if id[len(id)-1]%4 == 0 {
		return nil
	}
	return map[string]string{"order": id, "size": "naïve ✓, 大きさ", "empty": "", "long": strings.Repeat(id, 50)}
}

// message is the message of a deed.
func (w *witness) message(d deed) producer.Message {
	return producer.Message{
		ID: d.id, Broker: w.to.broker, Exchange: exchange, RoutingKey: w.name, Headers: d.headers, Body: d.body,
	}
}

// sending notes that the deed's half message is about to be sent.
func (w *witness) sending(d deed) {
	w.ledger.Sending(d.key, NewContent(exchange, w.name, d.headers, d.body))
}

// repeated is the first of the ways that use an id more than once.
const repeated = 94

// silent commits and forgets its Submit, refuses rolls back, breaksOff ends without a word before its commit, and
// lingers takes long.
func (d deed) silent() bool    { return d.way >= 60 && d.way < 72 }
func (d deed) refuses() bool   { return d.way >= 72 && d.way < 84 }
func (d deed) breaksOff() bool { return d.way >= 84 && d.way < 89 }
func (d deed) lingers() bool   { return d.way >= 89 && d.way < repeated }

// repeats says whether the business is sent again, conflicts whether another one is sent under its id.
func (d deed) repeats() bool   { return d.way >= repeated && d.way < 97 }
func (d deed) conflicts() bool { return d.way >= 97 }

// transact is the local transaction of an accepted half message.
func (w *witness) transact(d deed) error {
	w.ledger.Accepted(d.key)
	switch {
	case d.silent():
		w.ledger.Decide(d.key, Committed)
		return producer.ErrOutcomeUnknown
	case d.refuses():
		w.ledger.Decide(d.key, RolledBack)
		return errRefused
	case d.breaksOff():
		return producer.ErrOutcomeUnknown
	case d.lingers():
		wait(d.slow)
	}
	if w.ledger.Decide(d.key, Committed) != Committed {
		return errRefused // the tombstone was there first
	}
	return nil
}

// service is a user of the SDK.
type service struct {
	witness
	sdk     *producer.Producer
	markers marker.Store
	// send has the SDK send a message with a business of one of the ways.
	send func(ctx context.Context, m producer.Message, d deed) error
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newService has its business data in the ledger.
func newService(w *world, name string, markers marker.Store) *service {
	w.t.Helper()
	s := makeService(w, name, markers)
	s.send = func(ctx context.Context, m producer.Message, d deed) error {
		return s.sdk.Send(ctx, m, func(context.Context) error { return s.transact(d) })
	}
	s.serve(w, s.resolve)
	return s
}

func makeService(w *world, name string, markers marker.Store) *service {
	return &service{
		witness: witness{name: name, ledger: w.ledger, once: w.options.once, to: w.destination()}, markers: markers,
	}
}

// serve serves its callbacks until the test ends, or attends.
func (s *service) serve(w *world, resolve func(ctx context.Context, id string, final bool) (marker.Verdict, error)) {
	w.t.Helper()
	config := producer.Config{
		Name: s.name, Coordinator: w.targets(), Markers: s.markers, Resolve: resolve, SendTimeout: patience,
		MarkerTimeout: patience, Logger: quiet(),
	}
	var err error
	if w.options.attend {
		config.DialOptions = w.attendingThrough(&s.witness)
		s.sdk, err = producer.New(config)
		w.must(err)
	} else {
		listener := listen(w.t)
		config.CallbackTarget = w.callback(s.name, listener.Addr().String())
		config.Coordinators.Anyone = true
		s.sdk, err = producer.New(config)
		w.must(err)
		server := grpc.NewServer(grpc.UnaryInterceptor(s.observe))
		s.sdk.Register(server)
		serve(w.t, server, listener)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.sdk.Close(ctx)
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// serve serves until the test ends.
func serve(t *testing.T, server *grpc.Server, listener net.Listener) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
}

func (s *service) resolve(_ context.Context, id string, final bool) (marker.Verdict, error) {
	return map[Fate]marker.Verdict{
		Undecided: marker.Unknown, Committed: marker.Committed, RolledBack: marker.RolledBack,
	}[s.fate(id, final)], nil
}

func (s *service) act(ctx context.Context, id string, random *rand.Rand) {
	d := s.draw(id, random)
	m := s.message(d)
	s.sending(d)
	if !s.expect(d.key, s.send(ctx, m, d), nil, errRefused, producer.ErrOutcomeUnknown) {
		return // other content would be the first under this id, if this content was never stored
	}
	switch {
	case d.repeats():
		s.expect(d.key, s.send(ctx, m, d), producer.ErrAlreadyCommitted)
	case d.conflicts():
		m.Body = []byte("another")
		s.ledger.Noted(d.key, "producer", "sends other content under the same id")
		s.expect(d.key, s.send(ctx, m, d), producer.ErrExists, producer.ErrAlreadyCommitted)
	}
}

// expect notes an error that the load did not ask for, and returns false then.
func (s *service) expect(key string, got error, wanted ...error) bool {
	s.ledger.Noted(key, "producer", fmt.Sprint("Send returns: ", got))
	if got == nil {
		s.ledger.SendReturned(key)
	}
	for _, want := range wanted {
		if errors.Is(got, want) {
			return true
		}
	}
	s.surprised("%s: %v", key, got)
	return false
}

func (s *service) marked(ctx context.Context) ([]string, error) {
	return markedIn(ctx, s.markers, s.name, s.ledger.IDs(s.name))
}

// markedIn lists the ids of a producer that have a committed marker. A rolled-back marker stays until its expiry.
func markedIn(ctx context.Context, markers marker.Store, producer string, ids []string) (keys []string, err error) {
	for some := range slices.Chunk(ids, 1000) {
		found, err := markers.Lookup(ctx, some, false)
		if err != nil {
			return nil, err
		}
		for id, verdict := range found {
			if verdict == marker.Committed {
				keys = append(keys, producer+"/"+id)
			}
		}
	}
	return keys, nil
}

// load is the producers and consumers of a row.
type load struct {
	users   []user
	running sync.WaitGroup

	mu sync.Mutex
	// fleet begins the new ids; nil: the users.
	fleet *fleet
}

// userOf is the load's user of a kind.
func userOf[T user](t *testing.T, l *load) (found T) {
	t.Helper()
	for _, u := range l.users {
		if is, ok := u.(T); ok {
			return is
		}
	}
	t.Fatalf("the load has no %T", found)
	return found
}

// newLoad starts the consumers and makes the producers.
func newLoad(w *world) *load {
	w.t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: servers.Redis(w.t).Addr, ContextTimeoutEnabled: true})
	w.t.Cleanup(func() { client.Close() })
	kept, err := redismarker.New(redismarker.Config{Client: client, Producer: "kept"})
	if err != nil {
		w.t.Fatal(err)
	}
	switch {
	case w.options.consume != nil:
		w.options.consume(w)
	case w.stream != nil:
		w.stream.consume(w)
	default:
		consume(w, queue, &rabbitmqconsumer.Declare{Exchange: exchange})
	}
	l := &load{users: []user{newService(w, "forgetful", memory.New()), newService(w, "kept", kept)}}
	if !w.options.bare {
		l.users = append(l.users, newShop(w, "sqlite", newSQLite(w.t)), newShop(w, "postgresql", newPostgreSQL(w.t)))
	}
	if !w.options.once {
		l.users = append(l.users, newPlain(w, "plain"))
	}
	return l
}

// run begins so many ids a second until the context ends, and then waits for the begun ids.
func (l *load) run(t *testing.T, ctx context.Context, perSecond int, seed uint64) {
	t.Helper()
	begun := time.Now()
	random := rand.New(rand.NewPCG(seed, seed))
	for n := 0; ctx.Err() == nil; n++ {
		by, own := l.deployed(), rand.New(rand.NewPCG(seed, random.Uint64()))
		l.running.Go(func() {
			defer by.acting.Done()
			by.users[n%len(by.users)].act(t.Context(), fmt.Sprintf("%06d", n), own)
		})
		// Counted from the beginning, so that a slow machine catches up.
		pause(ctx, time.Until(begun.Add(time.Duration(n+1)*time.Second/time.Duration(perSecond))))
	}
	l.running.Wait()
}

// tell brings the data of the producers with a database into the ledger. No producer begins anything any more.
func (l *load) tell(t *testing.T) {
	t.Helper()
	for _, u := range l.users {
		if teller, can := u.(interface {
			tell(ctx context.Context) error
		}); can {
			if err := teller.tell(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// remainingMarkers waits until no marker is left, for as long as the deletions may take, and lists the remaining
// markers, except markers of parked messages.
func (l *load) remainingMarkers(t *testing.T, w *world, parked map[string]bool, within time.Duration) (keys []string) {
	t.Helper()
	type markedBy interface {
		marked(ctx context.Context) ([]string, error)
	}
	var all []markedBy
	for _, u := range l.users {
		all = append(all, u)
	}
	for _, p := range w.processes {
		all = append(all, p)
	}
	for deadline := time.Now().Add(within); ; wait(200 * time.Millisecond) {
		keys = nil
		for _, by := range all {
			marked, err := by.marked(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, marked...)
		}
		keys = slices.DeleteFunc(keys, func(key string) bool { return parked[key] })
		if len(keys) == 0 || time.Now().After(deadline) {
			return keys
		}
	}
}
