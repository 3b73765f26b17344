package bench

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
)

// stages are the stages of a message from its Submit to the broker's acknowledgement: a series of the coordinator and
// its label. A message passes the script of moves twice.
var stages = []struct{ name, metric, label string }{
	{"script submit", "msghandler_script_seconds", "submit"},
	{"Confirm", "msghandler_callback_seconds", "Confirm"},
	{"script move: the verdict", "msghandler_script_seconds", "move"},
	{"DeleteBusiness", "msghandler_callback_seconds", "DeleteBusiness"},
	{"publish until the broker's answer", "msghandler_publish_batch_seconds", ""},
	{"script move: acknowledged", "msghandler_script_seconds", "move"},
}

// BenchmarkHalf measures how long messages take at half of the possible rate, next to the durations of their stages,
// and to the bare reference at the same rate. Each load has a new world of its own, in which coordinator and reference
// take turns.
//
//	go test ./test/bench -run '^$' -bench Half -benchtime 1x -args -seconds 10 -rounds 3
func BenchmarkHalf(b *testing.B) {
	for b.Loop() {
		var table strings.Builder
		for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
			full := loaded(b, mode, 0).own[0].Rate
			reportHalf(&table, mode, full, loaded(b, mode, int(full/2)))
		}
		fmt.Println(table.String())
	}
}

func reportHalf(table *strings.Builder, mode bench.Mode, full float64, half atHalf) {
	fmt.Fprintf(table, "\n%s: %.0f messages/s of %.0f, %.0f bytes a message in Redis' append-only file, medians of %d\n\n",
		mode, medianOf(half.own, rateOf), full, half.written, *rounds)
	fmt.Fprintf(table, "| Submit to ack | p50 | p99 |\n|---|---|---|\n")
	fmt.Fprintf(table, "| as its caller sees it | %s |\n", submitToAck(half.own))
	fmt.Fprintf(table, "| of the bare reference at the same rate | %s |\n", submitToAck(half.bare))
	sum := 0.0
	for i, stage := range stages {
		took := half.took[i]
		sum += took.p50
		fmt.Fprintf(table, "| %s | %s | %s |\n", stage.name, milliseconds(took.p50), milliseconds(took.p99))
	}
	fmt.Fprintf(table, "| sum of the stages' p50 | %s | |\n", milliseconds(sum))
}

func submitToAck(reports []bench.Report) string {
	return milliseconds(medianOf(reports, submitP50)) + " | " + milliseconds(medianOf(reports, submitP99))
}

// atHalf is the result of a load: the reports of the coordinator and of the bare reference, the durations of the
// coordinator's stages, and the bytes a message that Redis wrote to its disk for the coordinator.
type atHalf struct {
	own, bare []bench.Report
	took      []figure
	written   float64
}

// loaded puts a load on a new world. A full load is put on the coordinator alone, once; any other load is put on the
// coordinator and on a bare reference in turn.
func loaded(b *testing.B, mode bench.Mode, offered int) (found atHalf) {
	b.Run(fmt.Sprintf("%s-%d", mode, offered), func(b *testing.B) {
		s := newSetup(b)
		load := s.load()
		load.Mode, load.Rate, load.ConsumeAfter, load.Warmup = mode, offered, true, 2*time.Second
		s.redis.CLI("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
		if offered == 0 {
			found.own = []bench.Report{s.measure(load)}
			return
		}
		reference := s.startReference()
		delivered := 0.0
		for range *rounds {
			before := s.appended()
			own := s.measure(load)
			found.written += s.appended() - before
			delivered += float64(own.Balance.Delivered)
			found.own, found.bare = append(found.own, own), append(found.bare, s.measure(reference.under(load)))
		}
		found.written /= delivered
		series := s.all[0].scrape()
		for _, stage := range stages {
			found.took = append(found.took, series.times(stage.metric, stage.label))
		}
	})
	return found
}

// appended is how many bytes Redis has written to its append-only file.
func (s *setup) appended() float64 {
	_, rest, _ := strings.Cut(s.redis.CLI("INFO", "persistence"), "aof_current_size:")
	line, _, _ := strings.Cut(rest, "\n")
	bytes, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	s.must(err)
	return bytes
}
