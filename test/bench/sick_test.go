package bench

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

var (
	waiting = flag.Int("waiting", 20_000, "messages that wait for each producer that is not well")
	offered = flag.Int("offered", 300, "messages a second of three healthy producers together; 0: as many as they can")
	phase   = flag.Duration("phase", 10*time.Second, "how long each phase is measured")
)

// answering is a producer that takes its time.
type answering struct {
	committed
	takes time.Duration
}

func (a answering) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	timer := time.NewTimer(a.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return a.committed.Confirm(ctx, r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// BenchmarkSickProducers measures three healthy producers alone, and beside a dead, a hanging and a slow one for which
// 20,000 messages wait each. The phases take turns, each with a coordinator and a Redis of its own that are new.
//
//	go test ./test/bench -run '^$' -bench SickProducers -benchtime 1x -args -rounds 5 -offered 300
func BenchmarkSickProducers(b *testing.B) {
	for b.Loop() {
		healthy := map[bool][]figure{}
		for round := range *rounds {
			for _, sick := range []bool{false, true} {
				f := measurePhase(b, sick)
				healthy[sick] = append(healthy[sick], f)
				b.Logf("round %d, sick producers %t: %.0f messages/s, p50 %v, p99 %v", round+1, sick, f.rate, f.p50, f.p99)
			}
		}
		reportSick(b, healthy[false], healthy[true])
	}
}

func reportSick(b *testing.B, calm, sick []figure) {
	rate := func(f figure) float64 { return f.rate }
	p99 := func(f figure) float64 { return float64(f.p99) }
	fmt.Printf("\nthree healthy producers, %d messages/s offered, medians of %d interleaved rounds of %v\n\n", *offered, *rounds,
		*phase)
	fmt.Printf("| | messages/s | p99 |\n|---|---|---|\n")
	fmt.Printf("| alone | %.0f | %s |\n", median(calm, rate), latency(median(calm, p99)))
	fmt.Printf("| beside a dead, a hanging and a slow one | %.0f | %s |\n", median(sick, rate), latency(median(sick, p99)))
	throughput, slower := median(sick, rate)/median(calm, rate), median(sick, p99)/median(calm, p99)
	fmt.Printf("| ratio | %.0f %% | %.2f |\n\n", 100*throughput, slower)
	b.ReportMetric(throughput, "throughput-ratio")
	b.ReportMetric(slower, "p99-ratio")
}

// measurePhase runs the healthy producers against a new world, with or without the sick ones.
func measurePhase(b *testing.B, sick bool) (f figure) {
	b.Run("phase", func(b *testing.B) {
		s := newSetup(b)
		s.healthy(time.Second) // connections, caches
		if sick {
			s.fall()
		}
		f = s.healthy(*phase)
	})
	return f
}

// healthy has three producers send and submit together so many messages a second, or without a rate as many as 24 callers
// can. A message's time runs from the moment at which it was due until the broker has acknowledged it.
func (s *setup) healthy(long time.Duration) figure {
	var mu sync.Mutex
	var took []time.Duration
	inTime := 0
	begun := time.Now()
	send := func(n int, due time.Time) {
		s.one(fmt.Sprintf("healthy-%d", n%3))
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(due))
		if time.Since(begun) < long {
			inTime++
		}
	}
	var working sync.WaitGroup
	if *offered > 0 {
		for n := range int(long.Seconds() * float64(*offered)) {
			due := begun.Add(time.Duration(n) * time.Second / time.Duration(*offered))
			timer := time.NewTimer(time.Until(due))
			<-timer.C
			working.Go(func() { send(n, due) })
		}
	} else {
		for n := range 24 {
			working.Go(func() {
				for time.Since(begun) < long {
					send(n, time.Now())
				}
			})
		}
	}
	working.Wait()
	_, err := s.channel.QueuePurge(queueName, false)
	s.must(err)
	slices.Sort(took)
	return figure{rate: float64(inTime) / long.Seconds(), p50: took[len(took)/2], p99: took[len(took)*99/100]}
}

// one takes one message of a producer through to the broker's acknowledgement.
func (s *setup) one(producer string) {
	ctx, m := context.Background(), s.message()
	_, err := s.api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: producer, CallbackTarget: s.callbacks, Message: m,
	})
	if err != nil {
		s.b.Error(err)
		return
	}
	answer, err := s.api.Submit(ctx, &pb.SubmitRequest{Producer: producer, Id: m.GetId(), Wait: pb.Wait_WAIT_DONE})
	if err != nil || answer.GetState() != pb.State_STATE_DONE {
		s.b.Errorf("submit: %v, %v", answer.GetState(), err)
	}
}

// fall lets messages wait for a producer where nobody listens, one that never answers, and one that needs two of the
// three seconds that it has.
func (s *setup) fall() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	s.must(listener.Close())
	targets := map[string]string{
		"dead": listener.Addr().String(), "hanging": s.answerAfter(time.Hour), "slow": s.answerAfter(2 * time.Second),
	}
	for producer, target := range targets {
		for left := *waiting; left > 0; left -= 1000 {
			half := &pb.SendHalfMessagesRequest{
				Producer: producer, CallbackTarget: target, ConfirmAfter: durationpb.New(time.Millisecond),
			}
			for range min(left, 1000) {
				half.Messages = append(half.Messages, s.message())
			}
			stored, err := s.api.SendHalfMessages(context.Background(), half)
			s.allIn(stored.GetOutcomes(), err, pb.State_STATE_PENDING)
		}
	}
}

// answerAfter serves a producer that takes so long to answer.
func (s *setup) answerAfter(takes time.Duration) (target string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, answering{takes: takes})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	s.b.Cleanup(func() { server.Stop(); serving.Wait() })
	return listener.Addr().String()
}
