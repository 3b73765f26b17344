package publishtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// refusedWithin is how long a batch with a refused message may take: an answer of the server, and no timeout.
const refusedWithin = 5 * time.Second

// A server may learn from the first batch with a refused message which message that is. So other messages may be Unsure
// or Unsent in early rounds, and are never Refused. Soon the refused message fails alone.
func refusedAlone(s *suite) {
	target := s.target("refused")
	refusals := s.Refusals(s.T, target)
	if len(refusals) == 0 {
		s.Fatal("the fixture names no refusal; every broker refuses an unknown target")
	}
	for _, refusal := range refusals {
		s.Run(refusal.Name, func(t *testing.T) {
			sub := *s
			sub.T = t
			sub.refuse(target, refusal)
		})
	}
	s.unread(target)
}

// refuse publishes the refused message in the middle of good messages until it fails alone.
func (s *suite) refuse(target Target, refusal Refusal) {
	s.Helper()
	p := refusal.Publisher
	if p == nil {
		p = s.open(confirmTimeout)
	}
	s.ready(p)
	const place, rounds = 10, 5
	batch := s.messages(target, 20)
	for i := range batch {
		batch[i].Name.ID = refusal.Name + " " + batch[i].Name.ID
	}
	refusal.Spoil(&batch[place])
	for round := 1; ; round++ {
		began := time.Now()
		results := s.publish(p, batch)
		if took := time.Since(began); took > refusedWithin {
			s.Errorf("round %d took %v", round, took)
		}
		s.expect(results[place:place+1], publish.Refused, publish.Unsure, publish.Unsent)
		others := slices.Delete(slices.Clone(results), place, place+1)
		s.expect(others, publish.Acked, publish.Unsure, publish.Unsent)
		if results[place].Outcome == publish.Refused && Count(others)[publish.Acked] == len(others) {
			s.refusedOnly(target, batch, place)
			return
		}
		if round == rounds {
			s.Fatalf("after %d rounds the refused message is %v, the others: %v", rounds, results[place], Count(others))
		}
		for i := range batch {
			batch[i].Attempt++
		}
	}
}

// refusedOnly fails the test unless the target has all messages of the batch but one.
func (s *suite) refusedOnly(target Target, batch []publish.Message, place int) {
	s.Helper()
	copies := byName(s.await(target, len(batch)-1))
	for i := range batch {
		if has := len(copies[batch[i].Name]) > 0; has == (i == place) {
			s.Errorf("message %d of the batch is in the target: %v", i, has)
		}
	}
}

// unread fails the test if the target has further records.
func (s *suite) unread(target Target) {
	s.Helper()
	if more := s.Read(s.T, target); len(more) > 0 {
		s.Errorf("the target has %d further records, the first is %+v", len(more), more[0])
	}
}

// A target that is deleted and made again is another target with the same name. What the publisher knows of the first
// one, such as an id, a rejection or sequence numbers, must not refuse or swallow messages to the second.
func madeAgain(s *suite) {
	target, p := s.target("again"), s.open(confirmTimeout)
	s.warm(p, target)
	for round, noticed := range []bool{false, true} {
		makeAgain := s.Remove(s.T, target)
		if noticed {
			s.expect(s.publish(p, s.probes(target, 10)), publish.Refused, publish.Unsure, publish.Unsent)
		}
		makeAgain()
		batch := s.messages(target, 20)
		for i := range batch {
			batch[i].Name.ID = fmt.Sprintf("%d-%d", round, i)
		}
		if noticed {
			s.eventually("the target that was made again takes a message", func() bool {
				return s.publish(p, batch[:1])[0].Outcome == publish.Acked
			})
		}
		s.repeat(p, batch)
		if arrived := byName(s.await(target, len(batch))); len(arrived) < len(batch) {
			s.Errorf("%d of %d messages arrived", len(arrived), len(batch))
		}
	}
}

// repeat publishes messages until each is acknowledged. None may be refused.
func (s *suite) repeat(p publish.Client, batch []publish.Message) {
	s.Helper()
	left := slices.Clone(batch)
	s.eventually("each message is acknowledged", func() bool {
		results := s.publish(p, left)
		s.expect(results, publish.Acked, publish.Unsure, publish.Unsent)
		var unsettled []publish.Message
		for i := range left {
			if results[i].Outcome != publish.Acked {
				again := left[i]
				again.Attempt++
				unsettled = append(unsettled, again)
			}
		}
		left = unsettled
		return len(left) == 0
	})
}
