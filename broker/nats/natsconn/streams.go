package natsconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

const (
	// lookupTimeout bounds the question about a stream.
	lookupTimeout = 2 * time.Second
	// lookupTTL is how long an answer about a stream is used again. Many messages to an unknown stream ask once.
	lookupTTL = time.Second
	// maxLookups bounds the answers in memory; at the limit all are forgotten.
	maxLookups = 1000
)

// Streams looks up streams for messages that no stream took, or that a stream left without an answer. The zero value is
// ready for use, concurrently.
type Streams struct {
	mu      sync.Mutex
	lookups map[string]*lookup
	// silent are streams that acknowledge nothing, and until when that is known.
	silent map[string]time.Time
	// asking has the questions. They end with their connection, or after lookupTimeout.
	asking lifecycle.Group
}

// Wait returns when no question is under way.
func (s *Streams) Wait(ctx context.Context) error { return s.asking.Wait(ctx) }

// lookup is one question about a stream. The fields are set when done is closed.
type lookup struct {
	done  chan struct{}
	asked time.Time
	info  *jetstream.StreamInfo
	err   error
}

// find asks for a stream. Concurrent callers share the question, and later callers the answer for a while. Each waits
// for the answer until the caller's own context ends.
func (s *Streams) find(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	l, mine := s.join(name)
	if mine {
		s.asking.Go(func() { l.askServer(context.WithoutCancel(ctx), js, name) })
	}
	select {
	case <-l.done:
		return l.info, l.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lookup) askServer(ctx context.Context, js jetstream.JetStream, name string) {
	defer close(l.done)
	l.info, l.err = Find(ctx, js, name)
}

// Find asks for a stream, within lookupTimeout.
func Find(ctx context.Context, js jetstream.JetStream, name string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return stream.CachedInfo(), nil
}

// join returns the question about a stream that is under way or just answered, or else a new one for the caller to ask.
func (s *Streams) join(name string) (l *lookup, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.lookups[name]; l != nil && time.Since(l.asked) < lookupTTL {
		return l, false
	}
	if s.lookups == nil || len(s.lookups) >= maxLookups {
		s.lookups = make(map[string]*lookup)
	}
	l = &lookup{done: make(chan struct{}), asked: time.Now()}
	s.lookups[name] = l
	return l, true
}

// Untaken says what it means that no server took a message: refused if the stream does not exist or does not take the
// subject, or else a reason to send the message later. In both cases no copy is out.
func (s *Streams) Untaken(ctx context.Context, js jetstream.JetStream, name, subject string) (refused bool, why error) {
	info, err := s.find(ctx, js, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return true, fmt.Errorf("no stream %q, and no other stream takes the subject %q", name, subject)
	case err != nil:
		return false, fmt.Errorf("no stream took the message, and the stream %q cannot be looked up: %w", name, err)
	case !slices.ContainsFunc(info.Config.Subjects, func(filter string) bool { return matches(filter, subject) }):
		return true, fmt.Errorf("the stream %q does not take the subject %q", name, subject)
	default:
		return false, fmt.Errorf("the stream %q has no leader for now", name)
	}
}

// matches says whether a subject of a stream's configuration covers the subject of a message.
func matches(filter, subject string) bool {
	wants, parts := strings.Split(filter, "."), strings.Split(subject, ".")
	for i, want := range wants {
		switch {
		case i >= len(parts):
			return false
		case want == ">":
			return true
		case want != "*" && want != parts[i]:
			return false
		}
	}
	return len(wants) == len(parts)
}

// NoteSilence looks whether a stream that left a message without an answer acknowledges messages at all.
func (s *Streams) NoteSilence(ctx context.Context, js jetstream.JetStream, name string) {
	info, err := s.find(ctx, js, name)
	if err != nil || !info.Config.NoAck {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent == nil || len(s.silent) >= maxLookups {
		s.silent = make(map[string]time.Time)
	}
	s.silent[name] = time.Now().Add(silenceTTL)
}

// silenceTTL is how long messages to a stream that acknowledges nothing are refused without a further try.
const silenceTTL = time.Minute

// Refusal says why a message to a stream would get no answer; nil otherwise.
func (s *Streams) Refusal(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, is := s.silent[name]; is && time.Now().Before(until) {
		return fmt.Errorf("the stream %q acknowledges nothing (no_ack), so no message to it is ever known to be stored", name)
	}
	return nil
}

// Forget drops what was known, as after a new connection.
func (s *Streams) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lookups, s.silent = nil, nil
}
