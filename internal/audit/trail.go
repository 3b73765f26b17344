package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// Stream is one of the lists of kept records. Each list is of what one right can do, so that records that a low right
// can make in numbers push out none that need a higher one.
type Stream string

// The streams, from the highest right to none.
const (
	// Changes are of admins, and of those who may write the files.
	Changes Stream = "changes"
	// Operations are what an operator may change, and the sessions of operators.
	Operations Stream = "operations"
	// Sessions are of viewers and readers.
	Sessions Stream = "sessions"
	// Refusals are of callers who have proved who they are, and Strangers of the others.
	Refusals  Stream = "refusals"
	Strangers Stream = "strangers"
)

// streams are all of them.
var streams = []Stream{Changes, Operations, Sessions, Refusals, Strangers}

// streamOf is the list that a record belongs to.
func streamOf(r *Record) Stream {
	switch {
	case r.Result == Refused && r.Refusal == ByIdentity:
		return Strangers
	case r.Result == Refused:
		return Refusals
	}
	switch r.Action { //nolint:exhaustive // all others are changes
	case Login, Logout:
		return streamOfSession(r.role)
	case Retry, Replay, ReplayDeadLetters:
		return Operations
	}
	return Changes
}

// streamOfSession is the list of the sessions of a role. The logins of viewers, who come from any number of addresses,
// stand beside no login of an admin.
func streamOfSession(role access.Role) Stream {
	switch {
	case role >= access.Admin:
		return Changes
	case role == access.Operator:
		return Operations
	}
	return Sessions
}

// joins says whether anyone with the right can make the record in numbers: equal ones become one.
func (r *Record) joins() bool { return r.Result == Refused || r.Action == Login || r.Action == Logout }

// Store keeps the texts of records.
type Store interface {
	// AppendAudit appends texts to a stream, which keeps about as many texts as most says. After an error the first texts
	// are stored, as many as the result says; the others may be stored too.
	AppendAudit(ctx context.Context, stream Stream, texts []string, most int) (stored int, err error)
	// ReadAudit returns entries of a stream, the newest first: at most count, older than the entry before (empty: from
	// the newest on), and not older than since (zero: any).
	ReadAudit(ctx context.Context, r Reading) ([]Entry, error)
}

// Metrics counts refusals and lost records. Its methods must not block.
type Metrics interface {
	// RefusedCalls counts refused calls by the kind of the refusal.
	RefusedCalls(kind Refusal, calls int64)
	// AuditDropped counts records that the log has and Redis has not.
	AuditDropped(records int)
}

// Config says what a Trail works with.
type Config struct {
	// Logger gets a line for each record. Default slog.Default().
	Logger *slog.Logger
	// Instance names this coordinator.
	Instance string
	// Metrics counts. Required.
	Metrics Metrics
	// Keep is about how many records each stream keeps. Zero: the log alone has them.
	Keep int
}

const (
	// maxWaiting bounds the records of each stream that wait for Redis: some MiB.
	maxWaiting = 1000
	// appendBatch is how many records a call to Redis takes.
	appendBatch = 100
	// appendTimeout bounds a call to Redis.
	appendTimeout = 5 * time.Second
)

// appendPauses are the pauses before records are sent to Redis again.
var appendPauses = backoff.Exponential(250*time.Millisecond, 5*time.Second)

// Trail is a Recorder that writes the log, and keeps records in a Store. Its methods may be called concurrently.
type Trail struct {
	config Config
	logged *loglimit.Limiter
	// joined joins equal records of a stream.
	joined map[Stream]*joiner
	// wake has a value when records wait.
	wake chan struct{}
	// closing is closed by Close; life ends when Close waits no longer.
	closing chan struct{}
	life    context.Context
	end     context.CancelFunc
	once    sync.Once
	running lifecycle.Group

	mu      sync.Mutex
	store   Store
	waiting map[Stream][]string
	closed  bool
}

// New starts a Trail, which must be closed. Records wait until Connect gives it a Store.
func New(config Config) *Trail {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	t := &Trail{
		config: config, logged: loglimit.New(joinFor),
		wake: make(chan struct{}, 1), closing: make(chan struct{}), waiting: map[Stream][]string{},
		joined: map[Stream]*joiner{},
	}
	for _, stream := range streams {
		t.joined[stream] = &joiner{}
	}
	t.life, t.end = context.WithCancel(context.Background())
	t.running.Go(t.joinEqual)
	return t
}

// Connect gives the Trail its Store. Connect is called once.
func (t *Trail) Connect(store Store) {
	t.mu.Lock()
	t.store = store
	t.mu.Unlock()
	if t.config.Keep > 0 {
		t.running.Go(t.keepWaiting)
	}
}

// Record implements Recorder.
func (t *Trail) Record(ctx context.Context, r Record) {
	r = t.complete(ctx, r)
	if !r.joins() {
		t.emit(ctx, r)
		return
	}
	r.From, r.Count = host(r.From), max(r.Count, 1)
	if r.Result == Refused {
		t.config.Metrics.RefusedCalls(r.Refusal, r.Count)
	}
	if t.joined[streamOf(&r)].add(r) {
		t.emit(ctx, r)
	}
}

// complete sets what the context knows, and bounds the texts.
func (t *Trail) complete(ctx context.Context, r Record) Record {
	who := access.From(ctx)
	r.role = who.Role
	if r.By == "" && r.Kind == "" {
		r.By, r.Kind = who.Name, cmp.Or(who.Kind, access.Anonymous)
	}
	origin := OriginOf(ctx)
	r.From, r.Via = cmp.Or(r.From, origin.From), cmp.Or(r.Via, origin.Via)
	if r.Time.IsZero() {
		r.Time = time.Now()
	}
	r.Time, r.Instance = r.Time.UTC(), t.config.Instance
	return r.bounded()
}

// emit writes a record to the log, and queues it for Redis. Only here are the texts cleaned, which takes longer than
// to count one of many refusals.
func (t *Trail) emit(ctx context.Context, r Record) {
	r = r.clean()
	writeLine(ctx, t.config.Logger, r)
	if t.config.Keep == 0 {
		return
	}
	text, _ := json.Marshal(r.kept()) // texts, numbers and times cannot fail
	stream := streamOf(&r)
	t.mu.Lock()
	full := t.closed || len(t.waiting[stream]) >= maxWaiting
	if !full {
		t.waiting[stream] = append(t.waiting[stream], string(text))
	}
	t.mu.Unlock()
	if full {
		t.drop(1, errQueueFull)
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// joinEqual emits the joined records until the Trail is closed.
func (t *Trail) joinEqual() {
	ticker := time.NewTicker(joinFor)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.emitJoined()
		case <-t.closing:
			return
		}
	}
}

func (t *Trail) emitJoined() {
	for _, joiner := range t.joined {
		for _, r := range joiner.takeDueRecords() {
			r.Instance = t.config.Instance
			t.emit(t.life, r)
		}
	}
}

// keepWaiting stores what waits until the Trail is closed. When Redis fails during the close, the rest is dropped.
func (t *Trail) keepWaiting() {
	for failures := 0; ; {
		more, err := t.keepSome()
		if err == nil && more {
			failures = 0
			continue
		}
		var again <-chan time.Time
		if err != nil {
			again = time.After(appendPauses.Delay(failures))
			failures++
			t.warn(err)
		}
		if !t.pause(again) {
			return
		}
	}
}

// pause waits until there is work: in again, when that is set, and at the next record otherwise. pause returns false
// when the Trail is closed.
func (t *Trail) pause(again <-chan time.Time) bool {
	wake := t.wake
	if again != nil {
		wake = nil
	}
	select {
	case <-wake:
	case <-again:
	case <-t.closing:
		return false
	}
	return true
}

// keepSome stores a batch of each stream, and reports whether there was one.
func (t *Trail) keepSome() (some bool, err error) {
	for _, stream := range streams {
		t.mu.Lock()
		batch := t.waiting[stream]
		batch = batch[:min(len(batch), appendBatch)]
		t.mu.Unlock()
		if len(batch) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(t.life, appendTimeout)
		stored, err := t.store.AppendAudit(ctx, stream, batch, t.config.Keep)
		cancel()
		t.mu.Lock()
		t.waiting[stream] = t.waiting[stream][stored:]
		t.mu.Unlock()
		if err != nil {
			return true, err
		}
		some = true
	}
	return some, nil
}

// Close stores what waits, and ends the Trail. Records of a closed Trail are only in the log.
func (t *Trail) Close(ctx context.Context) error {
	var err error
	t.once.Do(func() { err = t.close(ctx) })
	return err
}

func (t *Trail) close(ctx context.Context) error {
	defer t.end()
	defer context.AfterFunc(ctx, t.end)()
	close(t.closing)
	if err := t.running.Wait(ctx); err != nil {
		return err
	}
	t.emitJoined()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	var failure error
	for more := t.store != nil && t.config.Keep > 0; more && failure == nil; {
		more, failure = t.keepSome()
	}
	left := 0
	for _, waiting := range t.waiting {
		left += len(waiting)
	}
	if left > 0 {
		t.drop(left, cmp.Or(failure, errNoStore))
	}
	return nil
}
