package memory

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// HeldPerKey is how many unfinished messages an ordering key may have.
const HeldPerKey = 1000

// behindDue is the due time of a SENDABLE message that stands behind another one of its chain.
var behindDue = time.Unix(1<<40, 0)

// inChain says whether a message belongs to a chain, whose order is that of number.
func (e *entry) inChain() bool {
	return e.OrderingKey != "" && !e.State.Final() && e.State != halfmsg.Acknowledged
}

// first is the first message of the chain of a key; nil for an empty chain.
func (s *Store) first(producer, key string) (first *entry) {
	for _, e := range s.entries {
		if e.inChain() && e.Producer == producer && e.OrderingKey == key && (first == nil || e.number < first.number) {
			first = e
		}
	}
	return first
}

// behind says whether a message stands behind another one of its chain.
func (s *Store) behind(e *entry) bool { return e.inChain() && s.first(e.Producer, e.OrderingKey) != e }

// chainFull says whether a chain is as long as it may be.
func (s *Store) chainFull(producer, key string) bool {
	n := 0
	for _, e := range s.entries {
		if e.inChain() && e.Producer == producer && e.OrderingKey == key {
			n++
		}
	}
	return key != "" && n >= HeldPerKey
}

// hold lets a SENDABLE message wait for its turn, and makes the questions about the open messages before it due.
func (s *Store) hold(e *entry) {
	e.Token, e.due, e.hurry = "", behindDue, false
	for _, other := range s.entries {
		if other.State != halfmsg.Pending || other.Producer != e.Producer || other.OrderingKey != e.OrderingKey ||
			other.number > e.number || !other.AwaitedSince.IsZero() {
			continue
		}
		other.AwaitedSince = s.now()
		if other.hurry = s.held(other); !other.hurry {
			other.due = s.now()
		}
	}
}

// free makes the first message of a chain due that has only waited for its turn.
func (s *Store) free(producer, key string) {
	if key == "" {
		return
	}
	if first := s.first(producer, key); first != nil && first.due.Equal(behindDue) {
		first.due = s.now()
	}
}
