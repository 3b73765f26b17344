package faults

import (
	"context"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/wire"
)

// The Submit of a trusted producer is the verdict (submit.trust), so no Confirm call may follow. The producer of
// these rows knows nothing but its Submit: each Confirm call is answered with UNKNOWN, and the second call is the
// last.
var trustedRows = []row{
	{
		name: "F08_trusted", alone: true, short: true, unanswered: true, world: options{settings: trusting},
		fault: submitMeetsQuestion, judge: nobodyAskedAgain,
	},
	{
		name: "F03_trusted", alone: true, copies: true, world: options{settings: trusting, wired: true},
		fault: diesAfterTrustedSubmit, judge: nobodyWasAsked,
	},
}

// trusting takes each Submit for the verdict.
var trusting = append([]string{"MSGHANDLER_SUBMIT_TRUST=true"}, quick...)

// submitMeetsQuestion: a trusted Submit arrives while a confirm pass holds the message and waits for the answer to its
// question.
func submitMeetsQuestion(ctx context.Context, w *world, _ *rand.Rand) {
	p := newPeer(w)
	asked, submitted := make(chan struct{}), make(chan struct{})
	p.answers = func(id string, _ bool) []Fate {
		if p.times(id) == 1 {
			close(asked)
			<-submitted
		}
		return []Fate{Undecided}
	}
	p.send(ctx, "1", "paid")
	select {
	case <-asked:
	case <-ctx.Done():
		close(submitted)
		w.t.Fatal("no coordinator has asked")
	}
	w.ledger.Decide(key("1"), Committed)
	answer, err := p.api.Submit(ctx, &pb.SubmitRequest{Producer: peerName, Id: "1"})
	close(submitted)
	w.must(err)
	w.ledger.Noted(key("1"), "producer", "Submit returns: "+answer.GetState().String())
}

// nobodyAskedAgain demands that the Confirm call under way was the last call.
func nobodyAskedAgain(t *testing.T, w *world, _ *load, _ End) {
	if n := w.counted("msghandler_confirms_total{"); n != 1 {
		t.Errorf("%d questions had an answer, and 1 was under way when the Submit came", n)
	}
}

// diesAfterTrustedSubmit: the coordinator of the Submit is killed as soon as Redis has the verdict.
func diesAfterTrustedSubmit(ctx context.Context, w *world, _ *rand.Rand) {
	p, owner := newPeer(w), w.coordinators[0]
	p.answers = func(string, bool) []Fate { return []Fate{Undecided} }
	var once sync.Once
	killed := make(chan struct{})
	w.on(func(c *coordinator, e wire.Event) wire.Act {
		if c != owner || e.Phase != wire.Reply || e.Name != "trust" || len(e.Messages) == 0 {
			return wire.Pass
		}
		once.Do(func() {
			w.ledger.Fault("kill -9 of the coordinator that took the Submit")
			_ = w.end(owner, syscall.SIGKILL) // killed, and exits so
			close(killed)
		})
		return wire.Cut
	})
	p.send(ctx, "1", "paid")
	p.commit(ctx, "1")
	w.restartAfter(killed, owner)
}

// nobodyWasAsked demands that the Submit was verdict enough.
func nobodyWasAsked(t *testing.T, w *world, _ *load, _ End) {
	if n := w.counted("msghandler_confirms_total{"); n > 0 {
		t.Errorf("the producer was asked %d times after its Submit", n)
	}
}
