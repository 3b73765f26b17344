package bench

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/bench"
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

// BenchmarkHalf measures how long messages take at half of the possible rate, next to the durations of their stages.
// Each load has a new world of its own.
//
//	go test ./test/bench -run '^$' -bench Half -benchtime 1x -args -seconds 10
func BenchmarkHalf(b *testing.B) {
	for b.Loop() {
		var table strings.Builder
		for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
			full, _, _ := loaded(b, mode, 0)
			half, took, written := loaded(b, mode, int(full.Rate/2))
			fmt.Fprintf(&table, "\n%s: %.0f messages/s of %.0f, %.0f bytes a message in Redis' append-only file\n\n", mode,
				half.Rate,
				full.Rate, written)
			fmt.Fprintf(&table, "| Submit to ack | p50 | p99 |\n|---|---|---|\n")
			fmt.Fprintf(&table, "| as its caller sees it | %s | %s |\n", milliseconds(half.SubmitToAck.P50),
				milliseconds(half.SubmitToAck.P99))
			sum := 0.0
			for i, stage := range stages {
				sum += took[i].p50
				fmt.Fprintf(&table, "| %s | %s | %s |\n", stage.name, milliseconds(took[i].p50), milliseconds(took[i].p99))
			}
			fmt.Fprintf(&table, "| sum of the stages' p50 | %s | |\n", milliseconds(sum))
		}
		fmt.Println(table.String())
	}
}

// loaded puts a load on a new world and returns the durations of its stages, and the bytes a message that Redis wrote
// to its disk.
func loaded(b *testing.B, mode bench.Mode, offered int) (report bench.Report, took []figure, written float64) {
	b.Run(fmt.Sprintf("%s-%d", mode, offered), func(b *testing.B) {
		s := newSetup(b)
		load := s.load()
		load.Mode, load.Rate, load.ConsumeAfter, load.Warmup = mode, offered, true, 2*time.Second
		load.RedisURL = "" // or more messages would be stored to see their size
		s.redis.CLI("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
		report = s.measure(load)
		written = s.appended() / float64(report.Balance.Delivered)
		series := s.all[0].scrape()
		for _, stage := range stages {
			took = append(took, series.times(stage.metric, stage.label))
		}
	})
	return report, took, written
}

// appended is how many bytes Redis has written to its append-only file.
func (s *setup) appended() float64 {
	_, rest, _ := strings.Cut(s.redis.CLI("INFO", "persistence"), "aof_current_size:")
	line, _, _ := strings.Cut(rest, "\n")
	bytes, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
	s.must(err)
	return bytes
}
