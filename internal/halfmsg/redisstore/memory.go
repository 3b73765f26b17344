package redisstore

import (
	"sync"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// memoryBytes is about how much one generation of new messages takes; there are two.
	memoryBytes = 16 << 20
	// rememberable is how large a message may be: the room is for many, and a Submit of many is bounded by what it reads.
	rememberable = 64 << 10
)

// stored is a message as this store has stored it.
type stored struct {
	message halfmsg.Message
	digest  string // empty for none
}

// claim is what a Submit has claimed of it: submit.lua tells when it was created.
func (s *stored) claim(fields []any, token string) halfmsg.Claim {
	created, _ := fields[0].(int64)
	return halfmsg.Claim{
		Message: s.message, State: halfmsg.Pending, Token: halfmsg.Token(token), CreatedAt: timeAt(created),
	}
}

// memory keeps messages that this store has stored, because most of them are submitted here soon after, and need not be
// read from Redis then. Whether they are the ones that Redis has is for submit.lua to say. It forgets a message when it is
// taken, and the older generation when the newer one is full.
type memory struct {
	mu         sync.Mutex
	newer      map[halfmsg.Name]stored
	older      map[halfmsg.Name]stored
	newerBytes int
}

func (m *memory) keep(message *halfmsg.Message, digest string) {
	size := sizeOf(message)
	if size > rememberable {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.newer == nil || m.newerBytes > memoryBytes {
		m.newer, m.older, m.newerBytes = map[halfmsg.Name]stored{}, m.newer, 0
	}
	m.newer[message.Name] = stored{message: *message, digest: digest}
	m.newerBytes += size
}

// take gives what is known of a message, and forgets it.
func (m *memory) take(name halfmsg.Name) stored {
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
