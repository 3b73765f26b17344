package redis

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/servers"
)

// TestPagesAreIndexedInTurn has much left in the pages of one producer, and passes that index no more than a part of
// it. The messages of the others are indexed all the same, within two passes.
func TestPagesAreIndexedInTurn(t *testing.T) {
	t.Parallel()
	s, err := New(t.Context(), Config{
		URL: servers.Redis(t).URL(), Shards: 1, Logger: slog.New(slog.DiscardHandler),
	}.WithDefaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var all []halfmsg.Message
	for i := range 1000 {
		all = append(all, halfmsg.Message{Name: halfmsg.Name{Producer: "large", ID: fmt.Sprint(i)}})
	}
	const others = 8
	for i := range others {
		all = append(all, halfmsg.Message{Name: halfmsg.Name{Producer: fmt.Sprint("small", i), ID: "1"}})
	}
	for part := range slices.Chunk(all, 100) {
		for _, r := range s.Create(t.Context(), part) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}

	s.pageWorker.atMost = 0 // so a pass indexes at most 100 messages
	for range 2 {
		if _, err := s.ClaimPending(t.Context(), map[string]int{"none": 1}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	paged := func(producer string) int64 {
		return s.loops.HLen(t.Context(), s.keys.shards[0]+producer+":pending:cells").Val()
	}
	for i := range others {
		if n := paged(fmt.Sprint("small", i)); n > 0 {
			t.Errorf("%d messages of small%d are not indexed", n, i)
		}
	}
	if paged("large") == 0 {
		t.Error("all messages of the large producer were indexed: the test shows nothing")
	}
}
