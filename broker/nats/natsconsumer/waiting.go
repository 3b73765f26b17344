package natsconsumer

import (
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// later hands a message to the workers after a delay, or as soon as the pull ends; false when the pull has ended.
func (s *session) later(t *task, delay time.Duration) bool {
	s.ending.Lock()
	defer s.ending.Unlock()
	if s.over.Err() != nil {
		return false
	}
	s.late.Go(func() {
		_ = backoff.Sleep(s.over, delay) // an error is that of the context: the message goes back
		s.tasks <- t
	})
	return true
}

// await has a message handled again after a delay, as another copy of the message is being handled; false when no more
// is to be handled here. The message stays: each return to the server would count as a delivery, and other processes
// would take the deliveries for those of a message that ends its processes. The first messages that wait free their
// places for others.
func (s *session) await(t *task, m *consumer.Message, err error) bool {
	if s.run.stopping.Err() != nil || s.connected.Err() != nil {
		return false
	}
	delay := s.run.retry.Delay(t.busy)
	s.log().Again(m, err, delay)
	if t.busy == 0 {
		select {
		case s.waiting <- struct{}{}:
			t.free()
			t.free = func() { <-s.waiting }
		default:
		}
	}
	t.busy++
	return s.later(t, delay)
}
