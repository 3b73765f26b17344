// Package attend asks producers that serve no port. Such a producer attends: each of its replicas opens streams to
// coordinators, over which questions go out and answers come back.
//
// A Hub knows the streams of its coordinator. It asks over one of these, or sends the question to a coordinator that
// holds a stream of the producer, through the post of all coordinators. Questions are stored nowhere: a question that
// is lost has no answer, and its message is asked about again.
package attend

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/loglimit"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Post carries peer messages between coordinators and remembers where producers attend. Its methods may be called
// concurrently; errors are those of a store of halfmsg.
type Post interface {
	// Announce notes that a mailbox leads to streams of producers, for a time from now on; zero takes the note back.
	Announce(ctx context.Context, mailbox string, producers []string, lasting time.Duration) error
	// Mailboxes are the announced mailboxes of a producer, and how long ago it was last announced: negative where that was
	// longer ago than Memory.
	Mailboxes(ctx context.Context, producer string) (mailboxes []string, announced time.Duration, err error)
	// Send sends a peer message, and reports whether someone receives from the mailbox.
	Send(ctx context.Context, mailbox string, peerMessage []byte) (received bool, err error)
	// Receive hands the peer messages of a mailbox over, in the order of their arrival, until ctx ends or no more peer
	// messages can arrive. deliver must not block.
	Receive(ctx context.Context, mailbox string, deliver func(peerMessage []byte)) error
}

// Memory is how long a producer that does not attend any more may still send messages: its replicas may be restarting,
// and their messages wait for them. A Post remembers producers for at least so long.
const Memory = 24 * time.Hour

// What came of questions, for metrics.
const (
	// Answered: a replica has answered.
	Answered = "answered"
	// Failed: the replicas asked have answered that there is no answer.
	Failed = "failed"
	// Unanswered: no replica has answered in time.
	Unanswered = "unanswered"
	// Nobody: no replica attended.
	Nobody = "nobody"
	// Late: an answer that nobody waited for any more. Late answers count beside their question.
	Late = "late"
)

// Outcomes are all of them.
func Outcomes() []string { return []string{Answered, Failed, Unanswered, Nobody, Late} }

// ErrDraining refuses a stream of a coordinator that stops.
var ErrDraining = errors.New("this coordinator is stopping, and takes no more streams")

// ErrTooManyStreams refuses a stream over a limit.
var ErrTooManyStreams = errors.New("too many streams attend")

// Config configures a Hub. Required are Instance and the limits.
type Config struct {
	// Instance names the coordinator among all of its Redis. It is the name of the mailbox.
	Instance string
	// Streams and PerProducer bound the streams of this coordinator, in all and of one producer.
	Streams, PerProducer int
	// AnnounceEvery is how often the coordinator announces who attends here. 0: AnnounceEvery.
	AnnounceEvery time.Duration
	// Asked is called with what came of each question, and for each late answer. It must not block. May be nil.
	Asked func(outcome string)
	// Split hears of two replicas with different marker stores, of which one has OwnMarkers. Split must not block. May be
	// nil.
	Split func(producer, store, other string)
	// Logger gets one line for each event that a person may need. Default slog.Default().
	Logger *slog.Logger
}

// Hub keeps the streams of a coordinator, and asks producers. It is safe for concurrent use.
type Hub struct {
	config Config
	logged *loglimit.Limiter
	// post is set by Connect. Until then only the streams of this coordinator are asked.
	post atomic.Pointer[Post]
	// asks counts the questions sent by post. idPrefix begins their ids: random text, so that no answer to another
	// process settles one of them, not even where two have one name.
	asks     atomic.Uint64
	idPrefix string
	// incoming is how many questions of other coordinators are under way.
	incoming atomic.Int64
	recent   recent
	// lastReceived has the time of the last peer message, in nanoseconds since 1970.
	lastReceived atomic.Int64
	// announceNow wakes the goroutine that announces: a producer has no stream here any more.
	announceNow chan struct{}

	life context.Context
	end  context.CancelFunc
	work lifecycle.Group

	mu       sync.Mutex
	draining bool
	streams  int
	open     int
	rosters  map[string]*roster
	// announced are the producers that other coordinators may look for here.
	announced map[string]bool
	// sent are the questions sent by post that have no answer yet.
	sent map[string]chan<- outcome
}

// roster are the streams of a producer.
type roster struct {
	streams []*Stream
	// next is the stream whose turn it is.
	next int
	// announced says that other coordinators know of the producer.
	announced bool
	// changed is closed when a stream joins or a question ends; nil while nobody waits.
	changed chan struct{}
}

// New returns a Hub without streams. Close must follow.
func New(config Config) *Hub {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	config.AnnounceEvery = cmp.Or(config.AnnounceEvery, AnnounceEvery)
	if config.Asked == nil {
		config.Asked = func(string) {}
	}
	if config.Split == nil {
		config.Split = func(string, string, string) {}
	}
	h := &Hub{
		config: config, logged: loglimit.New(logInterval), idPrefix: rand.Text() + "-", announceNow: make(chan struct{}, 1),
		rosters: map[string]*roster{}, announced: map[string]bool{}, sent: map[string]chan<- outcome{},
	}
	h.life, h.end = context.WithCancel(context.Background())
	return h
}

// logInterval is how often one kind of trouble is worth a log line.
const logInterval = 10 * time.Second

// Connect connects the Hub with the other coordinators, until Close.
func (h *Hub) Connect(post Post) {
	h.post.Store(&post)
	h.lastReceived.Store(time.Now().UnixNano())
	h.work.Go(func() { h.receive(post) })
	h.work.Go(func() { h.announce(post) })
}

// Streams is how many streams attend here.
func (h *Hub) Streams() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.streams
}

// Open is how many questions wait for an answer of the streams here.
func (h *Hub) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open
}

// Drain takes no more streams, and asks all clients to open their streams elsewhere. Open questions are still answered;
// each stream is drained when it has none.
func (h *Hub) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for _, r := range h.rosters {
		for _, s := range slices.Clone(r.streams) { // each leaves the roster
			s.leaveLocked(true)
		}
	}
}

// Close ends the exchange with other coordinators. It must be called when nobody asks any more.
func (h *Hub) Close(ctx context.Context) error {
	h.Drain()
	h.end()
	if err := h.work.Wait(ctx); err != nil {
		return fmt.Errorf("questions of other coordinators are still under way: %w", err)
	}
	return nil
}

// Attended reports whether a producer attends, or has attended within Memory. The result is remembered, so that the
// store is not asked for each message of a producer.
func (h *Hub) Attended(ctx context.Context, producer string) (bool, error) {
	if h.attendsHere(producer) {
		return true, nil
	}
	if attended, known := h.recent.get(producer); known {
		return attended, nil
	}
	post := h.post.Load()
	if post == nil {
		return false, nil
	}
	_, announced, err := (*post).Mailboxes(ctx, producer)
	if err != nil {
		return false, fmt.Errorf("whether producer %s attends is not known: %w", producer, err)
	}
	attended := announced >= 0
	h.recent.put(producer, attended)
	return attended, nil
}

// Producers are the names of the producers that attend here, sorted.
func (h *Hub) Producers() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.rosters))
}

func (h *Hub) attendsHere(producer string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rosters[producer] != nil
}

// Hello is how a replica introduces itself.
type Hello struct {
	Producer string
	// Instance names the replica, for logs.
	Instance string
	// Parallel is how many questions may be open on the stream.
	Parallel int
	// MarkerStore is the identity of the replica's marker store; empty is an unknown identity. OwnMarkers says that no
	// other replica sees these markers.
	MarkerStore string
	OwnMarkers  bool
}

// Join adds a stream of a replica: from now on questions come out of it. End must follow. Other coordinators know of
// the producer when Join returns, so that they accept its messages. Join fails with ErrDraining, ErrTooManyStreams, or
// the error of the store.
func (h *Hub) Join(ctx context.Context, hello Hello) (*Stream, error) {
	s, announced, err := h.enter(hello)
	if err != nil {
		return nil, err
	}
	post := h.post.Load()
	if !announced && post != nil {
		if err := (*post).Announce(ctx, h.config.Instance, []string{hello.Producer}, h.config.presence()); err != nil {
			s.End()
			return nil, fmt.Errorf("producer %s cannot be announced: %w", hello.Producer, err)
		}
	}
	s.welcome()
	return s, nil
}

// enter adds a stream, and reports whether its producer is announced.
func (h *Hub) enter(hello Hello) (s *Stream, announced bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rosters[hello.Producer]
	switch {
	case h.draining:
		return nil, false, ErrDraining
	case h.streams >= h.config.Streams:
		return nil, false, fmt.Errorf("%w: %d in all", ErrTooManyStreams, h.streams)
	case r != nil && len(r.streams) >= h.config.PerProducer:
		return nil, false, fmt.Errorf("%w: %d of producer %s", ErrTooManyStreams,
			len(r.streams), hello.Producer)
	}
	if r == nil {
		r = &roster{}
		h.rosters[hello.Producer], h.announced[hello.Producer] = r, true
	}
	h.streams++
	if other := r.apartLocked(hello); other != "" {
		h.config.Split(hello.Producer, other, hello.MarkerStore)
	}
	return newStream(h, r, hello), r.announced, nil
}

// welcomeOf is the first message of a coordinator.
func welcomeOf(instance string) *msghandlerv1.AttendResponse {
	return &msghandlerv1.AttendResponse{Kind: &msghandlerv1.AttendResponse_Welcome{
		Welcome: &msghandlerv1.AttendWelcome{Instance: instance},
	}}
}
