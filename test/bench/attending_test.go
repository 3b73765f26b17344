package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	sdk "github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/test/servers"
)

var attending = flag.Int("attending", 1000, "producers that attend in BenchmarkAttending")

// BenchmarkAttending measures what producers cost a coordinator that serve no port and hold a stream each: its memory,
// and the processor time of coordinator and Redis while no producer sends, and while each sends a message in ten
// seconds.
//
//	go test ./test/bench -run '^$' -bench Attending -benchtime 1x
func BenchmarkAttending(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		fmt.Printf("\n| %d producers attend | coordinator's memory | its CPU | Redis's CPU |\n|---|---|---|---|\n",
			*attending)
		s.during("no producer attends", func() { wait(quietFor) })
		producers := s.attend(*attending)
		s.during("they send nothing", func() { wait(quietFor) })
		s.during("each sends one message in 10 s", func() { s.sendFrom(producers) })
		for _, p := range producers {
			_ = p.Close(context.Background()) // everything is sent
		}
	}
}

// quietFor is how long nothing happens.
const quietFor = 10 * time.Second

// wait waits; nothing else would show what silence costs.
func wait(d time.Duration) { <-time.After(d) }

// during reports what a coordinator and Redis spend while something happens.
func (s *setup) during(name string, happens func()) {
	before, began := s.processes().Sample(), time.Now()
	happens()
	after, took := s.processes().Sample(), time.Since(began)
	share := func(of string) float64 { return 100 * (after[of].CPU - before[of].CPU).Seconds() / took.Seconds() }
	fmt.Printf("| %s | %.0f MiB | %.1f %% of a core | %.1f %% |\n", name,
		float64(after[bench.Coordinator].Memory)/(1<<20), share(bench.Coordinator), share(bench.Redis))
}

// attend opens producers, and waits until each has a stream.
func (s *setup) attend(n int) (all []*sdk.Producer) {
	s.b.Helper()
	for i := range n {
		p, err := sdk.New(sdk.Config{
			Name: fmt.Sprintf("attending-%04d", i), Coordinator: s.all[0].api, Markers: memory.New(),
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			s.b.Fatal(err)
		}
		all = append(all, p)
	}
	servers.Eventually(s.b, time.Minute, "all attend", func() bool {
		return s.streams() >= n
	})
	return all
}

// sendFrom has each producer send one message, spread over ten seconds.
func (s *setup) sendFrom(producers []*sdk.Producer) {
	var sending sync.WaitGroup
	for i, p := range producers {
		sending.Go(func() {
			wait(quietFor * time.Duration(i) / time.Duration(len(producers)))
			m := sdk.Message{ID: "1", RoutingKey: queueName, Body: []byte("paid")}
			if err := p.Send(s.b.Context(), m, func(context.Context) error { return nil }); err != nil {
				s.b.Error(err)
			}
		})
	}
	sending.Wait()
}

// streams is how many streams the coordinator has, as it counts them.
func (s *setup) streams() (n int) {
	answer, err := http.Get(s.console + "/metrics")
	if err != nil {
		s.b.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(body), "\nmsghandler_attending_streams ")
	_, _ = fmt.Sscan(rest, &n) // zero where it is missing
	return n
}
