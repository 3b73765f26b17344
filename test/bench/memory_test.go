package bench

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/dev/bench"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

var blocked = flag.Int("blocked", 200_000, "messages that are submitted while the broker takes none")

// BenchmarkMemory measures a coordinator's memory: idle, under full load, and while the broker is blocked by an alarm
// and messages go on coming. Each has a new world of its own.
//
//	go test ./test/bench -run '^$' -bench Memory -benchtime 1x -args -seconds 15
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\n| a coordinator's memory | now | at most |\n|---|---|---|\n")
		remember(b, "idle for 10 s", func(*setup) { <-time.After(10 * time.Second) })
		for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
			remember(b, fmt.Sprintf("full load, %s", mode), func(s *setup) {
				load := s.load()
				load.Mode, load.ConsumeAfter = mode, true
				s.measure(load)
			})
		}
		remember(b, fmt.Sprintf("blocked broker, %d submitted", *blocked), (*setup).submitToBlocked)
	}
}

// remember reports what the coordinator of a new world holds after something has happened.
func remember(b *testing.B, name string, happens func(*setup)) {
	b.Run(name, func(b *testing.B) {
		s := newSetup(b)
		happens(s)
		used := s.processes().Sample()[bench.Coordinator]
		fmt.Printf("| %s | %.0f MiB | %.0f MiB |\n", name, float64(used.Memory)/(1<<20), float64(used.MostMemory)/(1<<20))
	})
}

// submitToBlocked stores and submits messages while the broker has an alarm, and clears the alarm in the end: all of
// them must be delivered.
func (s *setup) submitToBlocked() {
	q := s.openQueue()
	s.rabbit.Ctl("set_vm_memory_high_watermark", "0")
	var callers sync.WaitGroup
	const parallel, size = 4, 500
	for range parallel {
		callers.Go(func() {
			for left := *blocked / parallel; left > 0; left -= size {
				s.submitBatch(min(left, size))
			}
		})
	}
	callers.Wait()
	s.rabbit.Ctl("set_vm_memory_high_watermark", "0.4")
	servers.Eventually(s.b, 5*time.Minute, "all are delivered", func() bool { return q.ids.Load() >= int64(*blocked) })
}

// submitBatch stores messages and submits them without waiting for their fate.
func (s *setup) submitBatch(n int) {
	half := &pb.SendHalfMessagesRequest{
		Producer: producer, CallbackTarget: s.callbacks,
		ConfirmAfter: durationpb.New(time.Minute),
	}
	submit := &pb.SubmitAllRequest{Producer: producer}
	for range n {
		m := s.message()
		half.Messages, submit.Ids = append(half.Messages, m), append(submit.Ids, m.GetId())
	}
	stored, err := s.api.SendHalfMessages(context.Background(), half)
	s.allIn(stored.GetOutcomes(), err, pb.State_STATE_PENDING)
	if _, err := s.api.SubmitAll(context.Background(), submit); err != nil {
		s.b.Error(err)
	}
}
