package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/bench/compare"
	"github.com/msghandler/msghandler/internal/bench/usage"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

var standing = flag.Int("standing", 1_000_000, "pending messages that stand while the console is looked at")

// standingProducers share the messages that stand: one alone may not have so many.
const standingProducers = 4

// BenchmarkConsole measures pages of the console while a million messages are pending, and what one that looks at the
// overview each second costs those who send. It is about Redis and the coordinator, so no broker takes part: what is sent
// is committed and then waits for its delay.
//
//	go test ./test/bench -run '^$' -bench Console -benchtime 1x -timeout 60m -args -rounds 9
func BenchmarkConsole(b *testing.B) {
	for b.Loop() {
		s := &setup{b: b, redis: servers.Redis(b), body: make([]byte, *bodySize)}
		s.serveCallbacks()
		s.startCoordinator("embedded:")
		s.stand(*standing)
		b.Logf("%d messages stand", *standing)
		var table strings.Builder
		fmt.Fprintf(&table, "\n%d pending\n\n| page | median | slowest of %d |\n|---|---|---|\n", *standing, views)
		for _, page := range []struct{ name, path string }{
			{"overview", "/"},
			{"first page of all", "/messages?state=pending"},
			{"page 200 of all", s.after("/messages?state=pending", 200)},
			{"of one producer", "/messages?state=pending&producer=standing-3"},
			{"at least a second old", "/messages?state=pending&age=1s"},
			{"an exchange that none has", "/messages?state=pending&exchange=none"},
			{"an error that none has", "/messages?state=pending&error=none"},
		} {
			all := s.look(page.path)
			fmt.Fprintf(&table, "| %s | %s | %s |\n", page.name, milliseconds(all[len(all)/2].Seconds()*1000), milliseconds(all[len(all)-1].Seconds()*1000))
		}
		fmt.Println(table.String())
		s.beside(b)
	}
}

// stand stores messages that nobody asks about for a day.
func (s *setup) stand(n int) {
	body := make([]byte, 64)
	for sent := 0; sent < n; {
		r := &pb.SendHalfMessagesRequest{
			Producer: fmt.Sprintf("standing-%d", sent/1000%standingProducers), CallbackTarget: s.callbacks,
			ConfirmAfter: durationpb.New(24 * time.Hour),
		}
		for range min(1000, n-sent) {
			r.Messages = append(r.Messages, &pb.Message{
				Id: fmt.Sprintf("s-%d", s.ids.Add(1)), Exchange: "shop", RoutingKey: queueName, Body: body,
			})
		}
		answer, err := s.api.SendHalfMessages(context.Background(), r)
		s.must(err)
		if code := answer.GetOutcomes()[0].GetCode(); code != 0 {
			s.b.Fatalf("refused: %v", answer.GetOutcomes()[0])
		}
		sent += len(r.GetMessages())
	}
}

// views is how often each page is looked at, and between how long after the one before: the counts are kept for five
// seconds, so some looks find them and some do not.
const (
	views   = 10
	between = 600 * time.Millisecond
)

// look times a page.
func (s *setup) look(path string) (all []time.Duration) {
	ticker := time.NewTicker(between)
	defer ticker.Stop()
	for range views {
		<-ticker.C
		begun := time.Now()
		s.get(path)
		all = append(all, time.Since(begun))
	}
	slices.Sort(all)
	return all
}

func (s *setup) get(path string) string {
	answer, err := http.Get(s.console + path)
	s.must(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	s.must(err)
	if answer.StatusCode != http.StatusOK {
		s.b.Fatalf("%s: %d", path, answer.StatusCode)
	}
	return string(body)
}

var nextLink = regexp.MustCompile(`rel="next" href="([^"]+)"`)

// after follows the link to the next page so many times.
func (s *setup) after(path string, pages int) string {
	for range pages {
		link := nextLink.FindStringSubmatch(s.get(path))
		if link == nil {
			s.b.Fatalf("%s is the last page", path)
		}
		path = strings.ReplaceAll(link[1], "&amp;", "&")
	}
	return path
}

// beside measures batches with and without somebody at the console, in turn.
func (s *setup) beside(b *testing.B) {
	var quiet, watched []figure
	for round := range *rounds {
		for _, look := range []bool{round%2 == 0, round%2 != 0} {
			f := s.watched(look)
			if look {
				watched = append(watched, f)
			} else {
				quiet = append(quiet, f)
			}
			b.Logf("round %d, console polled %t: %.0f messages/s", round+1, look, f.rate)
		}
	}
	ratio := make([]float64, len(quiet))
	for i := range ratio {
		ratio[i] = watched[i].rate / quiet[i].rate
	}
	slices.Sort(ratio)
	rate := func(f figure) float64 { return f.rate }
	cpu := func(f figure) float64 { return f.cpu }
	fmt.Printf("\n| | messages/s | CPU us/message: coordinator and Redis |\n|---|---|---|\n| nobody looks | %.0f | %.1f |\n| overview each second | %.0f | %.1f |\n",
		median(quiet, rate), median(quiet, cpu), median(watched, rate), median(watched, cpu))
	fmt.Printf("\nratio of the rounds: %.3f, from %.3f to %.3f\n", ratio[len(ratio)/2], ratio[0], ratio[len(ratio)-1])
}

// watched measures one round, with the overview looked at each second or not.
func (s *setup) watched(look bool) figure {
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for look {
			s.get("/")
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	processes := s.watchedProcesses()
	before := processes.Sample()
	took := s.committed()
	after := processes.Sample()
	end()
	<-ended
	f := figure{rate: float64(*messages) / took.Seconds()}
	for name := range processes {
		f.cpu += float64((after[name].CPU - before[name].CPU).Microseconds()) / float64(*messages)
	}
	return f
}

// watchedProcesses are those who take part, but for the one that sends.
func (s *setup) watchedProcesses() usage.Processes {
	return usage.Processes{compare.Coordinator: {s.coordinator.Process.Pid}, compare.Redis: {s.redis.Pid()}}
}

// committed measures batches from SendHalfMessages until the verdicts are stored.
func (s *setup) committed() time.Duration {
	ctx := context.Background()
	return s.inParallel(8, *batch, func(count int) {
		half := &pb.SendHalfMessagesRequest{Producer: producer, CallbackTarget: s.callbacks}
		submit := &pb.SubmitAllRequest{Producer: producer, Wait: pb.Wait_WAIT_SENDABLE}
		for range count {
			m := s.message()
			m.Delay = durationpb.New(24 * time.Hour)
			half.Messages = append(half.Messages, m)
			submit.Ids = append(submit.Ids, m.GetId())
		}
		stored, err := s.api.SendHalfMessages(ctx, half)
		s.allIn(stored.GetOutcomes(), err, pb.State_STATE_PENDING)
		submitted, err := s.api.SubmitAll(ctx, submit)
		s.allIn(submitted.GetOutcomes(), err, pb.State_STATE_SENDABLE)
	})
}
