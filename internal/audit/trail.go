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

// Stream is one of the two lists of kept records.
type Stream string

// The streams: changes are no refusals, so that refusals push no change out.
const (
	Changes  Stream = "changes"
	Refusals Stream = "refusals"
)

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
	// refusals joins equal refusals.
	refusals refusals
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
	}
	t.life, t.end = context.WithCancel(context.Background())
	t.running.Go(t.joinRefusals)
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
	if r.Result != Refused {
		t.emit(ctx, r)
		return
	}
	r.From, r.Count = host(r.From), max(r.Count, 1)
	t.config.Metrics.RefusedCalls(r.Refusal, r.Count)
	if t.refusals.add(r) {
		t.emit(ctx, r)
	}
}

// complete sets what the context knows, and bounds the texts.
func (t *Trail) complete(ctx context.Context, r Record) Record {
	if r.By == "" && r.Kind == "" {
		who := access.From(ctx)
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
	stream := Changes
	if r.Result == Refused {
		stream = Refusals
	}
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

// joinRefusals emits the joined refusals until the Trail is closed.
func (t *Trail) joinRefusals() {
	ticker := time.NewTicker(joinFor)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			t.emitRefusals()
		case <-t.closing:
			return
		}
	}
}

func (t *Trail) emitRefusals() {
	for _, r := range t.refusals.take() {
		r.Instance = t.config.Instance
		t.emit(t.life, r)
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
	for _, stream := range []Stream{Changes, Refusals} {
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
	t.emitRefusals()
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	var failure error
	for more := t.store != nil && t.config.Keep > 0; more && failure == nil; {
		more, failure = t.keepSome()
	}
	if left := len(t.waiting[Changes]) + len(t.waiting[Refusals]); left > 0 {
		t.drop(left, cmp.Or(failure, errNoStore))
	}
	return nil
}
