package confirmloop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The backlog of a producer that takes long yields more than that of a prompt one.
func TestAnswersWithoutDelayArePrompt(t *testing.T) {
	for takes, want := range map[time.Duration]bool{
		0: true, 249 * time.Millisecond: true, 250 * time.Millisecond: false, 2 * time.Second: false,
	} {
		t.Run(takes.String(), func(t *testing.T) {
			inHouse(t, confirmloop.Config{}, func(h *house) {
				h.answers(func(_ context.Context, _ halfmsg.Target, ids []string, _ bool) (verdicts, error) {
					time.Sleep(takes)
					return all(ids, halfmsg.VerdictCommitted), nil
				})
				h.have("orders", "1")
				h.pass()
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if len(h.sent) != 1 || h.sent[0].Prompt != want {
					t.Errorf("sent %+v, want one message with prompt %t", h.sent, want)
				}
			})
		})
	}
}
