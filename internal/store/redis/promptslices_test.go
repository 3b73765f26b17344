package redis_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// TestPromptBacklogGoesInLargerSlices stores the outcomes of 80 messages of a backlog beside a new message. Those of a
// producer that answers without delay are one call, and those of others are four.
func TestPromptBacklogGoesInLargerSlices(t *testing.T) {
	t.Parallel()
	const n = 80
	for _, prompt := range []bool{true, false} {
		var calls atomic.Int64
		store, _, _ := fresh(t, redisstore.Config{Shards: 1, Ran: func(script string, _ int, _ time.Duration) {
			if script == "move" {
				calls.Add(1)
			}
		}})
		messages, _ := numbered(n, 10)
		create(t, store, messages...)
		claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": n}, time.Minute)
		if err != nil || len(claims) != n {
			t.Fatalf("claimed %d, %v", len(claims), err)
		}
		settlements := make([]halfmsg.Settlement, n)
		for i, claim := range claims {
			settlements[i] = halfmsg.Settlement{
				Name: claim.Name, Token: claim.Token, Event: halfmsg.EventUnknown, After: time.Hour, Cause: "not yet",
				Backlog: true, Prompt: prompt,
			}
		}
		create(t, store, half("new"))
		for _, r := range store.Settle(t.Context(), settlements) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if got := calls.Load(); (got == 1) != prompt {
			t.Errorf("prompt %v: %d outcomes went in %d calls", prompt, n, got)
		}
	}
}
