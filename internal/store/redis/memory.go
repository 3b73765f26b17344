package redis

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// memoryBytes is about how much one generation of new messages takes; there are two.
	memoryBytes = 16 << 20
	// rememberable is the largest message to remember: the room is for many messages, and the byte limit of a Submit
	// counts only records from Redis.
	rememberable = 64 << 10
)

// stored is a message as this store has stored it.
type stored struct {
	message halfmsg.Message
	digest  string
	created int64 // in milliseconds; 0 for no message
}

// claim is the message as a Submit has claimed it.
func (s *stored) claim(token string, at time.Time) *halfmsg.Claim {
	return &halfmsg.Claim{
		Message: s.message, Fingerprint: s.digest, State: halfmsg.Pending, Token: halfmsg.Token(token),
		CreatedAt: timeAt(s.created), ClaimedAt: at,
	}
}

// sendable is the message as a trusted Submit has made it SENDABLE at a time, and claimed it under a token, "" for
// none.
func (s *stored) sendable(token string, at time.Time) *halfmsg.Claim {
	claim := s.claim(token, at)
	claim.State, claim.SendableAt = halfmsg.Sendable, at
	if token == "" {
		claim.Body = nil
	}
	return claim
}

// when is the creation time in the form of submit.lua and trust.lua.
func (s *stored) when() string {
	if s.created == 0 {
		return ""
	}
	return strconv.FormatInt(s.created, 10)
}

// whenPaged is the creation time as a cell has it, in 13 digits.
func (s *stored) whenPaged() string {
	if when := s.when(); when == "" || len(when) >= 13 {
		return when
	}
	return fmt.Sprintf("%013d", s.created)
}

// memory keeps messages that this store has stored, because most messages are submitted here soon after, and need not
// be read from Redis then. submit.lua decides whether Redis still holds the same message. A message is forgotten when
// taken, and the older generation when the newer generation is full.
type memory struct {
	mu         sync.Mutex
	newer      map[halfmsg.Name]stored
	older      map[halfmsg.Name]stored
	newerBytes int
}

func (m *memory) keep(s stored) {
	size := sizeOf(&s.message)
	if size > rememberable {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newer == nil || m.newerBytes > memoryBytes {
		m.newer, m.older, m.newerBytes = map[halfmsg.Name]stored{}, m.newer, 0
	}
	m.newer[s.message.Name] = s
	m.newerBytes += size
}

// takeMessage returns and forgets a message.
func (m *memory) takeMessage(name halfmsg.Name) stored {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, generation := range []map[halfmsg.Name]stored{m.newer, m.older} {
		if s, found := generation[name]; found {
			delete(generation, name)
			return s
		}
	}
	return stored{}
}

// sizeOf is about how much memory a message takes.
func sizeOf(m *halfmsg.Message) int {
	const overhead = 512
	size := overhead + len(m.Body)
	for key, value := range m.Headers {
		size += len(key) + len(value)
	}
	return size
}
