package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// Effects of one producer on the others.
var crowdRows = []row{
	sickRow(),
	floodRow(),
}

// sickBacklog is the number of messages that wait for each sick producer.
const sickBacklog = 20_000

// sick is F11: a dead producer, a hung producer and a slow producer, each with a backlog.
type sick struct {
	dead, hanging, slow *stub
	well                chan struct{}
	// left is how many of the backlog were still waiting when all others had been served.
	left int
}

func sickRow() row {
	s := &sick{}
	return row{
		name: "F11", world: options{bare: true, settings: usualLeases, before: s.meet}, fault: s.run,
		judge: s.judge,
	}
}

// meet makes the three. The dead producer has an address where nothing listens.
func (s *sick) meet(w *world) {
	s.well = make(chan struct{})
	s.dead, s.slow = newStub(w, "dead", committed), newStub(w, "slow", committed)
	s.hanging = newStub(w, "hanging", func(ctx context.Context, _ string, _ bool) (pb.Verdict, error) {
		select {
		case <-s.well:
			return pb.Verdict_VERDICT_COMMITTED, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
	// Slightly less than confirm.timeout allows.
	s.slow.takes = 800 * time.Millisecond
	s.hanging.serve()
	s.slow.serve()
}

func (s *sick) run(ctx context.Context, w *world, _ *rand.Rand) {
	for _, p := range []*stub{s.dead, s.hanging, s.slow} {
		p.had(0, sickBacklog)
		if err := p.sendAll(w.t.Context(), sickBacklog); err != nil {
			w.t.Fatal(err)
		}
	}
	w.ledger.Fault(fmt.Sprintf("%d messages wait for a dead, a hanging and a slow producer each", sickBacklog))
	<-ctx.Done()
	servers.Eventually(w.t, patience/2, "all commits of the healthy producers are delivered", func() bool {
		return w.ledger.UndeliveredOf("forgetful/")+w.ledger.UndeliveredOf("kept/") == 0
	})
	s.left = w.ledger.UndeliveredOf("")
	w.ledger.Fault("the dead, the hanging and the slow producer are well again")
	close(s.well)
	s.dead.serve()
	servers.Eventually(w.t, patience, "the messages waiting for the producers are delivered", func() bool {
		return w.ledger.UndeliveredOf("") == 0
	})
}

func (s *sick) judge(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	t.Logf("%d of %d still waited for the sick when all others had been served; calls at once: hanging %d, slow %d",
		s.left, 3*sickBacklog, s.hanging.peak.Load(), s.slow.peak.Load())
	if s.left < 2*sickBacklog {
		t.Errorf("only %d messages still waited: the healthy producers were not served before the sick", s.left)
	}
	const calls = 4 // of one coordinator to one producer at once
	for _, p := range []*stub{s.hanging, s.slow} {
		if peak, most := p.peak.Load(), int64(calls*len(w.coordinators)); peak == 0 || peak > most {
			t.Errorf("%s had %d calls at once; %d may be", p.name, peak, most)
		}
	}
}

// sendAll stores so many half messages through all coordinators.
func (s *stub) sendAll(ctx context.Context, n int) error {
	const most = 1000
	for from := 0; from < n; from += most {
		c := s.w.coordinators[from/most%len(s.w.coordinators)]
		switch _, refused, err := s.send(ctx, c, from, min(from+most, n)); {
		case err != nil:
			return err
		case refused > 0:
			return fmt.Errorf("%d of the messages of %s were refused", refused, s.name)
		}
	}
	return nil
}

// flood is F34: one producer sends and sends, and never submits.
type flood struct {
	producer *stub
	// stored, refused and odd count the sent messages: stored, refused with RESOURCE_EXHAUSTED, or refused with another
	// error.
	stored, refused, odd atomic.Int64
	// most is the highest number of its messages at a time; before and bytes are the memory of Redis before and at most.
	most, before, bytes int64
	// abandoned counts the messages that were abandoned and then discarded.
	abandoned int64
	// first is the first odd error.
	first   error
	once    sync.Once
	sending sync.WaitGroup
}

// floodLimit is how many unfinished messages a producer may have in F34.
const floodLimit = 20_000

func floodRow() row {
	f := &flood{}
	return row{name: "F34", world: options{
		bare:     true,
		settings: []string{fmt.Sprintf("MSGHANDLER_LIMITS_UNFINISHED=%d", floodLimit)}, before: f.meet,
	}, fault: f.run, judge: f.judge}
}

// meet makes a producer of which every other business was rolled back, and nothing is known of the rest.
func (f *flood) meet(w *world) {
	f.producer = newStub(w, "flood", func(_ context.Context, id string, _ bool) (pb.Verdict, error) {
		if id[len(id)-1]%2 == 0 {
			return pb.Verdict_VERDICT_ROLLED_BACK, nil
		}
		return pb.Verdict_VERDICT_UNKNOWN, nil
	})
	f.producer.serve()
}

// run sends 500 messages ten times a second until the context ends, on a slow machine until some were refused. Then
// run waits until each has been answered or abandoned, and has an operator discard the abandoned messages.
func (f *flood) run(ctx context.Context, w *world, _ *rand.Rand) {
	f.before = usedMemory(w)
	const size, interval = 500, 100 * time.Millisecond
	begun := time.Now()
	for n := 0; ctx.Err() == nil || f.refused.Load() == 0 && n < 4*floodLimit/size; n++ {
		f.sending.Go(func() { f.send(w, n*size, (n+1)*size) })
		if n%5 == 0 {
			f.look(w)
		}
		wait(time.Until(begun.Add(time.Duration(n+1) * interval)))
	}
	f.sending.Wait()
	f.look(w)
	w.ledger.Fault("the flood is over")
	servers.Eventually(w.t, patience, "the flood is answered or abandoned", func() bool {
		counts, ok := f.standing(w)
		return ok && counts[pb.State_STATE_PENDING] == 0
	})
	f.discard(w)
}

func (f *flood) send(w *world, from, to int) {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	stored, refused, err := f.producer.send(ctx, w.coordinators[from/500%len(w.coordinators)], from, to)
	f.stored.Add(int64(stored))
	f.refused.Add(int64(refused))
	if err != nil {
		f.odd.Add(1)
		f.once.Do(func() { f.first = err })
	}
}

// look notes how much there is.
func (f *flood) look(w *world) {
	counts, ok := f.standing(w)
	if !ok {
		return
	}
	f.most = max(f.most, counts[pb.State_STATE_PENDING]+counts[pb.State_STATE_ABANDONED])
	f.bytes = max(f.bytes, usedMemory(w))
}

// standing counts all messages by state. Those of the load are few beside the flood.
func (f *flood) standing(w *world) (counts map[pb.State]int64, ok bool) {
	counts = map[pb.State]int64{}
	err := w.call(w.coordinators[0], func(conn *grpc.ClientConn) error {
		stats, err := adminv1.NewAdminServiceClient(conn).GetStats(w.t.Context(), &adminv1.GetStatsRequest{})
		for _, s := range stats.GetStates() {
			counts[s.GetState()] = s.GetCount()
		}
		return err
	})
	return counts, err == nil
}

func (f *flood) discard(w *world) {
	w.t.Helper()
	err := w.call(w.coordinators[0], func(conn *grpc.ClientConn) error {
		for more := true; more; {
			response, err := adminv1.NewAdminServiceClient(conn).DiscardMessages(w.t.Context(), &adminv1.DiscardMessagesRequest{
				Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{
					State:    pb.State_STATE_ABANDONED,
					Producer: "flood",
				}},
				Limit:  1000,
				Reason: "the flood",
			})
			if err != nil {
				return err
			}
			f.abandoned += response.GetChanged()
			if more = response.GetNextPageToken() != ""; more && response.GetChanged() == 0 {
				return errors.New("there is more to discard, and none was")
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (f *flood) judge(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	t.Logf("%d stored, %d refused, %d abandoned; at most %d there at once, %d MiB more in Redis", f.stored.Load(),
		f.refused.Load(), f.abandoned, f.most, (f.bytes-f.before)>>20)
	if f.odd.Load() > 0 {
		t.Errorf("%d calls of the flood failed in another way than RESOURCE_EXHAUSTED, the first with %v", f.odd.Load(),
			f.first)
	}
	if f.refused.Load() == 0 || f.abandoned == 0 {
		t.Error("nothing was refused, or nothing abandoned: the flood never reached its limit")
	}
	// A shard counts its own part, and the load has some messages too.
	if most := int64(floodLimit + floodLimit/10); f.most > most {
		t.Errorf("there were %d messages at once, and the limit is %d", f.most, floodLimit)
	}
	// A pending message takes 1.7 KB, the receipt of a rolled back message 0.2 KB, and the load and buffers some
	// megabytes.
	if most := f.before + floodLimit*3000 + f.stored.Load()*300 + 64<<20; f.bytes > most {
		t.Errorf("Redis used %d MiB; %d would be bounded", f.bytes>>20, most>>20)
	}
}
