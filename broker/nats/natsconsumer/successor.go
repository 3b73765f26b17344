package natsconsumer

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// isReplaced reports, after the end of the pull, that nothing may be told to the server about the messages here: the
// durable consumer or the stream was deleted, and what has their names now counts its messages in the same way.
func (s *session) isReplaced() bool { return s.over.Err() != nil && s.replaced }

// isOfSuccessor reports whether a delivery is of another durable consumer with the same name. Each consumer numbers its
// deliveries from one. A server that was killed may give a number twice, so the consumer's age decides.
func (s *session) isOfSuccessor(durable jetstream.Consumer, meta *jetstream.MsgMetadata) bool {
	if meta.Sequence.Consumer <= s.last {
		if gone, known := s.hasSuccessor(durable); gone || !known {
			return gone
		}
	}
	s.last = meta.Sequence.Consumer // after a step back, one answer counts for all numbers that are given twice
	return false
}

// hasSuccessor asks whether the durable consumer of this session is gone, also when another one has its name; not known
// without an answer.
func (s *session) hasSuccessor(durable jetstream.Consumer) (gone, known bool) {
	if s.connected.Err() != nil {
		return false, false
	}
	ctx, cancel := context.WithTimeout(s.run.work, ioTimeout)
	defer cancel()
	info, err := s.info(ctx, durable)
	if err != nil {
		gone = errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound)
		return gone, gone
	}
	return !info.Created.Equal(s.created), true
}

// end ends the session: no message is handed to the workers any more. why is why the pull has ended.
func (s *session) end(durable jetstream.Consumer, why error) {
	s.replaced = errors.Is(why, jetstream.ErrConsumerDeleted)
	if !s.replaced && s.run.stopping.Err() == nil {
		s.replaced, _ = s.hasSuccessor(durable)
	}
	if s.replaced {
		s.run.failures.reset() // the server counts deliveries anew
	}
	s.ending.Lock()
	s.endPull()
	s.ending.Unlock()
	_ = s.late.Wait(context.Background())
	close(s.tasks)
}
