package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// TestPagesAreIndexedInTurn has much left in the pages of one producer, and passes that index no more than a part of
// it. The messages of the others must still be indexed within two passes.
func TestPagesAreIndexedInTurn(t *testing.T) {
	t.Parallel()
	s := onRedis(t, 1)
	var all []halfmsg.Message
	for i := range 1000 {
		all = append(all, halfmsg.Message{Name: halfmsg.Name{Producer: "large", ID: fmt.Sprint(i)}})
	}
	const others = 8
	for i := range others {
		all = append(all, halfmsg.Message{Name: halfmsg.Name{Producer: fmt.Sprint("small", i), ID: "1"}})
	}
	fill(t, s, all)

	s.pageTime = 0 // so a pass indexes at most 100 messages
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
