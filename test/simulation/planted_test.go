package simulation

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/faults"
)

// A defect that is planted turns a run red, and the words name it.
func TestPlantedDefectsAreFound(t *testing.T) {
	for name, plant := range map[faults.Verdict]func(w *World){faults.Phantom: answerOpen, faults.Lost: emptyRedis} {
		t.Run(string(name), func(t *testing.T) {
			for seed := range uint64(5) {
				r := Run(t, seed, Options{Only: []string{"nothing"}, Messages: 40, Times: 1, Prepare: plant})
				if slices.ContainsFunc(r.Wrong, func(words string) bool { return strings.HasPrefix(words, string(name)) }) {
					t.Logf("seed %d: %s", seed, r.Wrong[0])
					return
				}
			}
			t.Error("five seeds have not found it")
		})
	}
}

// answerOpen has producers answer COMMITTED about open businesses.
func answerOpen(w *World) {
	w.faulty.answers = append(w.faulty.answers, func(
		ctx context.Context, _ string, in any, next grpc.UnaryHandler,
	) (any, error) {
		r, out, err := confirmed(ctx, in, next)
		for _, c := range r.GetConfirmations() {
			if c.GetVerdict() == pb.Verdict_VERDICT_UNKNOWN {
				c.Verdict = pb.Verdict_VERDICT_COMMITTED
			}
		}
		return out, err
	})
}

// emptyRedis has Redis lose everything, which is noted as no fault.
func emptyRedis(w *World) {
	w.goInBackground(func() {
		for range 10 {
			if sleep(w.life, 10*time.Second) == nil {
				w.Redis.mini.FlushAll()
			}
		}
	})
}
