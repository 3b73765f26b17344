package publishtest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

func endedContext(s *suite) {
	target, p := s.target("ended"), s.open(confirmTimeout)
	s.warm(p, target)
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	results := s.publishWithin(ctx, p, s.messages(target, 2000))
	s.expect(results, publish.Acked, publish.Unsent)
	counts := Count(results)
	if counts[publish.Unsent] == 0 {
		s.Errorf("got %v", counts)
	}
	if n := len(byName(s.await(target, counts[publish.Acked]))); n != counts[publish.Acked] {
		s.Errorf("%d messages arrived, and %d were acknowledged", n, counts[publish.Acked])
	}
}

func closedPublisher(s *suite) {
	target, p := s.target("closed"), s.open(confirmTimeout)
	s.warm(p, target)
	answers := s.start(p, s.messages(target, 2000))
	s.close(p)
	results := answers()
	s.expect(results, publish.Acked, publish.Unsent) // Close waits for the answers, so no message is in doubt
	s.expect(s.publish(p, s.messages(target, 1)), publish.Unsent)
	if p.Ready() == nil {
		s.Error("a closed publisher is ready")
	}
	if n := Count(results)[publish.Acked]; len(byName(s.await(target, n))) != n {
		s.Errorf("more messages arrived than the %d acknowledged messages", n)
	}
	s.close(p) // a second time
}

func awayFromTheStart(s *suite) {
	target := s.target("away")
	restore := s.Cut(s.T)
	p := s.Open(s.T, shortTimeout)
	defer s.close(p)
	s.unavailable(p, target, publish.Unsent)
	restore()
	s.recovers(p, target)
}

// unavailable waits until Ready says why the broker takes no messages. Messages are Unsent then, soon.
func (s *suite) unavailable(p publish.Client, target Target, meanwhile ...publish.Outcome) {
	s.Helper()
	s.eventually("the publisher is not ready", func() bool {
		s.expect(s.publish(p, s.probes(target, 10)), meanwhile...)
		return p.Ready() != nil
	})
	if p.Ready().Error() == "" {
		s.Error("Ready does not say why")
	}
	began := time.Now()
	s.expect(s.publish(p, s.probes(target, 1000)), publish.Unsent)
	if took := time.Since(began); took > time.Second {
		s.Errorf("Publish took %v although the publisher is not ready", took)
	}
}

// probes are messages that no test counts.
func (s *suite) probes(target Target, n int) []publish.Message {
	batch := s.messages(target, n)
	for i := range batch {
		batch[i].Name.Producer = "probes"
	}
	return batch
}

// recovers waits until the publisher is ready without help, and publishes.
func (s *suite) recovers(p publish.Client, target Target) {
	s.Helper()
	s.ready(p)
	s.eventually("messages are acknowledged again", func() bool {
		results := s.publish(p, s.probes(target, 10))
		s.expect(results, publish.Acked, publish.Unsure, publish.Unsent)
		return Count(results)[publish.Acked] == len(results)
	})
	s.expect(s.publish(p, s.probes(target, 100)), publish.Acked)
}

func blockedBroker(s *suite) {
	target, p := s.target("blocked"), s.open(shortTimeout)
	s.warm(p, target)
	unblock := s.Block(s.T)
	s.unavailable(p, target, publish.Acked, publish.Unsure, publish.Unsent)
	unblock()
	s.recovers(p, target)
}

func lostConnections(s *suite) {
	target, p := s.target("lost"), s.open(confirmTimeout)
	s.warm(p, target)
	for range 3 {
		restore := s.Cut(s.T)
		s.unavailable(p, target, publish.Acked, publish.Unsure, publish.Unsent)
		restore()
		s.recovers(p, target)
	}
}

// A network without an answer is the worst case: no error comes. Messages are in doubt at the latest when the confirm
// timeout has passed. The first group of outcomes, which may be empty, does not wait so long.
func hangingBroker(s *suite) {
	target, p := s.target("hanging"), s.open(shortTimeout)
	s.warm(p, target)
	resume := s.Hang(s.T)
	began, first := time.Now(), time.Duration(0)
	results := make([]publish.Result, 1000)
	p.Publish(s.Context(), s.messages(target, len(results)), func(places []int, some []publish.Result) {
		if first == 0 {
			first = time.Since(began)
		}
		for n, i := range places {
			results[i] = some[n]
		}
	})
	if took := time.Since(began); took > shortTimeout+slack {
		s.Errorf("Publish took %v with a confirm timeout of %v", took, shortTimeout)
	}
	if first > shortTimeout/2 {
		s.Errorf("the first group came after %v", first)
	}
	s.expect(results, publish.Unsure, publish.Unsent)
	if counts := Count(results); counts[publish.Unsure] == 0 {
		s.Errorf("got %v, and some messages were on their way", counts)
	}
	resume()
	s.recovers(p, target)
}

// A caller with less time than the confirm timeout waits no longer than its deadline.
func deadlineEndsWait(s *suite) {
	target, p := s.target("deadline"), s.open(confirmTimeout)
	s.warm(p, target)
	resume := s.Hang(s.T)
	ctx, cancel := context.WithTimeout(s.Context(), shortTimeout)
	defer cancel()
	began := time.Now()
	s.expect(s.publishWithin(ctx, p, s.probes(target, 100)), publish.Unsure, publish.Unsent)
	if took := time.Since(began); took > shortTimeout+slack {
		s.Errorf("Publish took %v with %v until the deadline", took, shortTimeout)
	}
	resume()
	s.recovers(p, target)
}

// The server gets messages, answers none, and dies. A consumer must be able to tell that their repeats may be repeats.
func killedBroker(s *suite) {
	target, p := s.target("killed"), s.open(confirmTimeout)
	s.warm(p, target)
	_ = s.Hang(s.T) // Restart ends it
	batch := s.messages(target, 100)
	answers := s.start(p, batch)
	s.eventually("messages are in flight", func() bool { return p.InFlight() >= len(batch)/2 })
	s.Kill(s.T)
	began := time.Now()
	results := answers()
	if took := time.Since(began); took > confirmTimeout+slack {
		s.Errorf("Publish took %v after the kill", took)
	}
	s.expect(results, publish.Unsure, publish.Unsent)
	if counts := Count(results); counts[publish.Unsure] == 0 {
		s.Errorf("got %v, and messages were in flight", counts)
	}
	s.unavailable(p, target, publish.Unsure, publish.Unsent)
	s.Restart(s.T)
	s.recovers(p, target)
	for i := range batch {
		if results[i].Outcome == publish.Unsure { // as the send loop counts
			batch[i].Attempt++
		}
	}
	s.expect(s.publish(p, batch), publish.Acked)
	s.flagged(target, batch)
}

// flagged fails the test unless the target has the batch, and every copy after the first is flagged.
func (s *suite) flagged(target Target, batch []publish.Message) {
	s.Helper()
	var records []Record
	s.eventually("all messages have arrived", func() bool {
		records = append(records, s.Read(s.T, target)...)
		found := byName(records)
		for i := range batch {
			if len(found[batch[i].Name]) == 0 {
				return false
			}
		}
		return true
	})
	copies := byName(records)
	for i := range batch {
		attempts := map[int]int{}
		for _, r := range copies[batch[i].Name] {
			attempts[r.Attempt]++
		}
		if attempts[1] > 1 || attempts[batch[i].Attempt] == 0 {
			s.Errorf("message %d has copies by number %v, and its latest copy is %d", i, attempts, batch[i].Attempt)
		}
	}
}

// acknowledgedSurvive kills the server in the middle of a load. Whatever was acknowledged is there afterwards.
func acknowledgedSurvive(s *suite) {
	target, p := s.target("durable"), s.open(confirmTimeout)
	s.warm(p, target)
	load := s.startLoad(p, target)
	s.eventually("a load is acknowledged", func() bool { return load.count() > 1000 })
	s.Kill(s.T)
	s.unavailable(p, target, publish.Acked, publish.Unsure, publish.Unsent)
	acked := load.stop()
	s.Restart(s.T)
	s.recovers(p, target)
	s.eventually(fmt.Sprintf("all %d acknowledged messages are there", len(acked)), func() bool {
		for _, r := range s.Read(s.T, target) {
			delete(acked, r.Name)
		}
		return len(acked) == 0
	})
}

// load publishes batches until it is stopped.
type load struct {
	cancel context.CancelFunc
	group  sync.WaitGroup
	mu     sync.Mutex
	acked  map[publish.Name]bool
}

func (s *suite) startLoad(p publish.Client, target Target) *load {
	ctx, cancel := context.WithCancel(s.Context())
	l := &load{cancel: cancel, acked: map[publish.Name]bool{}}
	l.group.Go(func() {
		for round := 0; ctx.Err() == nil; round++ {
			batch := s.messages(target, 100)
			for i := range batch {
				batch[i].Name.ID = fmt.Sprintf("%d-%d", round, i)
			}
			results := s.publishWithin(ctx, p, batch)
			l.note(batch, results)
			if p.Ready() != nil {
				return
			}
		}
	})
	return l
}

func (l *load) note(batch []publish.Message, results []publish.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range results {
		if r.Outcome == publish.Acked {
			l.acked[batch[i].Name] = true
		}
	}
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// stop ends the load and returns the names of the acknowledged messages.
func (l *load) stop() map[publish.Name]bool {
	l.cancel()
	l.group.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.acked)
}
