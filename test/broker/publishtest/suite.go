package publishtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// suite is the broker in one test, with shorthands.
type suite struct {
	*testing.T
	Broker
	// number makes the names of the test unique on the server.
	number int
}

// target makes a target of the test.
func (s *suite) target(name string) Target {
	s.Helper()
	target := s.Target(s.T, fmt.Sprintf("promise-%d-%s", s.number, name))
	if len(target.Keys) < 3 {
		s.Fatalf("the fixture's target %q has %d keys, and the suite needs 3", target.Exchange, len(target.Keys))
	}
	return target
}

// open starts a publisher that is closed when the test ends, and waits until it is ready.
func (s *suite) open(confirmTimeout time.Duration) publish.Client {
	s.Helper()
	p := s.Open(s.T, confirmTimeout)
	s.Cleanup(func() { s.close(p) })
	s.ready(p)
	return p
}

// warm publishes one message: connections and the state of the target are known then.
func (s *suite) warm(p publish.Client, target Target) {
	s.Helper()
	m := s.message(target, 0)
	m.Name.ID = "warm-up"
	s.eventually("the first message is acknowledged", func() bool {
		return s.publish(p, []publish.Message{m})[0].Outcome == publish.Acked
	})
	s.await(target, 1)
}

func (s *suite) close(p publish.Client) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout+slack)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		s.Errorf("close: %v", err)
	}
}

func (s *suite) ready(p publish.Client) {
	s.Helper()
	s.eventually("the publisher is ready", func() bool { return p.Ready() == nil })
}

// message is the message of a number. Consecutive numbers take the target's keys in turn.
func (s *suite) message(target Target, n int) publish.Message {
	return publish.Message{
		Name:       publish.Name{Producer: "orders", ID: fmt.Sprint(n)},
		Exchange:   target.Exchange,
		RoutingKey: target.Keys[n%len(target.Keys)],
		Body:       fmt.Appendf(nil, "body of %d", n),
		DueAt:      time.Unix(1_700_000_000, 0),
		Attempt:    1,
	}
}

func (s *suite) messages(target Target, n int) []publish.Message {
	batch := make([]publish.Message, n)
	for i := range batch {
		batch[i] = s.message(target, i)
	}
	return batch
}

// publish publishes a batch and returns the outcomes in the order of the batch.
func (s *suite) publish(p publish.Client, batch []publish.Message) []publish.Result {
	s.Helper()
	return s.publishWithin(s.Context(), p, batch)
}

// publishWithin also checks the rules of Publish itself: each place is handed over once, not concurrently, with a cause
// unless acknowledged. It may be called on any goroutine.
func (s *suite) publishWithin(
	ctx context.Context, p publish.Client, batch []publish.Message,
) []publish.Result {
	s.Helper()
	outcomes := make([]publish.Result, len(batch))
	var busy atomic.Bool
	p.Publish(ctx, batch, func(places []int, results []publish.Result) {
		if !busy.CompareAndSwap(false, true) {
			s.Error("answered was called concurrently")
		}
		defer busy.Store(false)
		for n, i := range places {
			if outcomes[i].Outcome != 0 {
				s.Errorf("the outcome of message %d was handed over twice", i)
			}
			outcomes[i] = results[n]
		}
	})
	for i, r := range outcomes {
		if r.Outcome == 0 {
			s.Errorf("the outcome of message %d was not handed over", i)
		}
		if (r.Cause == nil) != (r.Outcome == publish.Acked) {
			s.Errorf("message %d is %v with the cause %v", i, r.Outcome, r.Cause)
		}
	}
	return outcomes
}

// start publishes a batch in the background. The returned function waits for the outcomes.
func (s *suite) start(p publish.Client, batch []publish.Message) (answers func() []publish.Result) {
	var group sync.WaitGroup
	var results []publish.Result
	group.Go(func() { results = s.publish(p, batch) })
	return func() []publish.Result {
		group.Wait()
		return results
	}
}

// expect fails the test when an outcome is none of these.
func (s *suite) expect(results []publish.Result, want ...publish.Outcome) {
	s.Helper()
	for i, r := range results {
		if !slices.Contains(want, r.Outcome) {
			s.Fatalf("message %d of %d is %v (%v), want %v; all: %v", i, len(results), r.Outcome, r.Cause, want, Count(results))
		}
	}
}

// await reads the target until it has n different messages, and returns all records.
func (s *suite) await(target Target, n int) []Record {
	s.Helper()
	var records []Record
	s.eventually(fmt.Sprintf("%s has %d messages", target.Exchange, n), func() bool {
		records = append(records, s.Read(s.T, target)...)
		return len(byName(records)) >= n
	})
	return records
}

// byName gathers the copies of each message, in the order of the records.
func byName(records []Record) map[publish.Name][]Record {
	copies := make(map[publish.Name][]Record)
	for _, r := range records {
		copies[r.Name] = append(copies[r.Name], r)
	}
	return copies
}

// once fails the test unless the target holds each message of the batch once and nothing else.
func (s *suite) once(target Target, batch []publish.Message) []Record {
	s.Helper()
	records := s.await(target, len(batch))
	records = append(records, s.Read(s.T, target)...)
	copies := byName(records)
	for i := range batch {
		if n := len(copies[batch[i].Name]); n != 1 {
			s.Errorf("%d copies of message %d", n, i)
		}
	}
	if len(records) != len(batch) {
		s.Errorf("%d records, want %d", len(records), len(batch))
	}
	return records
}

// eventually waits until a condition holds.
func (s *suite) eventually(what string, holds func() bool) {
	s.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(end) {
			s.Fatalf("not within %v: %s", patience, what)
		}
	}
}
