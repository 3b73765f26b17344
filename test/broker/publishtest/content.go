package publishtest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// largeBody is a body that every broker takes with its default limits.
const largeBody = 512 << 10

func contentArrives(s *suite) {
	target, p := s.target("content"), s.open(confirmTimeout)
	batch := s.messages(target, 5)
	batch[0].Body, batch[0].ContentType = []byte(`{"id":1}`), "application/json"
	batch[0].Headers = map[string]string{"tenant": "eu", "empty": "", "unicode": "Grüße, 世界"}
	batch[1].Body = nil
	batch[2].Body = bytes.Repeat([]byte{0, 1, 0xff}, largeBody/3)
	batch[3].Name = publish.Name{Producer: "orders.eu-1", ID: "a/b c:1"}
	batch[4].DueAt = time.Unix(1_600_000_000, 0)
	s.expect(s.publish(p, batch), publish.Acked)
	got := byName(s.once(target, batch))
	for i := range batch {
		for _, r := range got[batch[i].Name] {
			s.same(&batch[i], &r)
		}
	}
}

// same fails the test unless a record holds what the message holds.
func (s *suite) same(m *publish.Message, r *Record) {
	s.Helper()
	switch {
	case r.Exchange != m.Exchange || r.RoutingKey != m.RoutingKey:
		s.Errorf("message %v is at %q with the key %q", m.Name, r.Exchange, r.RoutingKey)
	case r.ContentType != m.ContentType:
		s.Errorf("message %v has the content type %q, want %q", m.Name, r.ContentType, m.ContentType)
	case !bytes.Equal(r.Body, m.Body):
		s.Errorf("message %v has another body: %d bytes, want %d", m.Name, len(r.Body), len(m.Body))
	case r.Timestamp.Unix() != m.DueAt.Unix():
		s.Errorf("message %v has the timestamp %v, want %v", m.Name, r.Timestamp, m.DueAt)
	case r.Attempt != m.Attempt:
		s.Errorf("message %v is copy %d, want %d", m.Name, r.Attempt, m.Attempt)
	case len(r.Headers)+len(m.Headers) > 0 && !maps.Equal(r.Headers, m.Headers):
		s.Errorf("message %v has the headers %q, want %q", m.Name, r.Headers, m.Headers)
	}
}

func traceTravels(s *suite) {
	const trace, own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-own-own-01"
	target, p := s.target("trace"), s.open(confirmTimeout)
	batch := s.messages(target, 3)
	batch[0].Trace = trace
	batch[1].Trace, batch[1].Headers = trace, map[string]string{"traceparent": own}
	s.expect(s.publish(p, batch), publish.Acked)
	got := byName(s.once(target, batch))
	for i, want := range []string{trace, own, ""} {
		if is := got[batch[i].Name][0].Headers["traceparent"]; is != want {
			s.Errorf("message %d has the trace context %q, want %q", i, is, want)
		}
	}
}

func attemptTravels(s *suite) {
	target, p := s.target("attempt"), s.open(confirmTimeout)
	batch := s.messages(target, 3)
	for i := range batch {
		batch[i].Attempt = 1 + 7*i
	}
	s.expect(s.publish(p, batch), publish.Acked)
	got := byName(s.once(target, batch))
	for i := range batch {
		if is := got[batch[i].Name][0].Attempt; is != batch[i].Attempt {
			s.Errorf("message %d is copy %d, want %d", i, is, batch[i].Attempt)
		}
	}
}

func arrivesOnce(s *suite) {
	const callers, each = 4, 250
	target, p := s.target("once"), s.open(confirmTimeout)
	batch := s.messages(target, callers*each)
	var group sync.WaitGroup
	for part := range callers {
		group.Go(func() {
			for _, r := range s.publish(p, batch[part*each:(part+1)*each]) {
				if r.Outcome != publish.Acked {
					s.Errorf("got %v: %v", r.Outcome, r.Cause)
				}
			}
		})
	}
	group.Wait()
	s.once(target, batch)
	s.expect(s.publish(p, nil))
}

// The order is promised for messages of one batch that are all acknowledged. The coordinator keeps the order of
// repeats.
func orderWithinKey(s *suite) {
	target, p := s.target("order"), s.open(confirmTimeout)
	for round := range 3 {
		batch := s.messages(target, 300)
		for i := range batch {
			batch[i].Name.ID = fmt.Sprintf("%d-%d", round, i)
		}
		s.expect(s.publish(p, batch), publish.Acked)
		last := map[string]int{}
		for _, r := range s.once(target, batch) {
			var n int
			if _, err := fmt.Sscanf(r.Name.ID, fmt.Sprint(round)+"-%d", &n); err != nil {
				s.Fatalf("a record has the id %q: %v", r.Name.ID, err)
			}
			if before, is := last[r.RoutingKey]; is && n < before {
				s.Errorf("key %q: message %d comes after message %d", r.RoutingKey, n, before)
			}
			last[r.RoutingKey] = n
		}
	}
}

// The coordinator publishes the copy of a dead message with the routing key of the message. A producer that sends a
// dead message again, with its headers, publishes a message like any other, and so does a replay of that message.
func deadLetterTarget(s *suite) {
	origin, p := s.target("origin"), s.open(confirmTimeout)
	dead := s.DeadLetters(s.T, origin)
	m, again := s.message(origin, 1), s.message(origin, 2)
	m.Exchange, m.Publication, m.Dead = dead.Exchange, "dead-1", true
	m.Headers = map[string]string{"msghandler-dead-reason": "no such exchange", "tenant": "eu"}
	again.Headers, again.Publication = m.Headers, "replay-1"
	s.expect(s.publish(p, []publish.Message{m, again}), publish.Acked)
	r := s.once(dead, []publish.Message{m})[0]
	s.same(&m, &r)
	r = s.once(origin, []publish.Message{again})[0]
	s.same(&again, &r)
}

// copyOnPurpose replays a message under its name, and copies a message twice that became DEAD twice. A broker that
// drops repeats by the name must take none of them for a repeat.
func copyOnPurpose(s *suite) {
	target, p := s.target("purpose"), s.open(confirmTimeout)
	dead := s.DeadLetters(s.T, target)
	replays := s.copies(target, "", "replay-1", "replay-2")
	deaths := s.copies(dead, "dead-4", "dead-8")
	for i := range deaths {
		deaths[i].Dead = true
	}
	for _, m := range append(slices.Clone(replays), deaths...) {
		s.expect(s.publish(p, []publish.Message{m}), publish.Acked)
	}
	s.arrived(target, replays)
	s.arrived(dead, deaths)
}

// copies is one message in several publications, each of which is a further copy.
func (s *suite) copies(target Target, publications ...string) []publish.Message {
	batch := make([]publish.Message, len(publications))
	for i, publication := range publications {
		batch[i] = s.message(target, 0)
		batch[i].Publication, batch[i].Attempt = publication, i+1
	}
	return batch
}

// arrived fails the test unless the target gets each of the copies once.
func (s *suite) arrived(target Target, copies []publish.Message) {
	s.Helper()
	records := s.await(target, 1)
	s.eventually("all copies have arrived", func() bool {
		records = append(records, s.Read(s.T, target)...)
		return len(records) >= len(copies)
	})
	for i, r := range records {
		if r.Attempt != i+1 {
			s.Errorf("record %d of %q is copy %d", i+1, target.Exchange, r.Attempt)
		}
	}
}
