package redis

import (
	"fmt"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m memory
	body := make([]byte, 60<<10)
	name := func(i int) halfmsg.Name { return halfmsg.Name{Producer: "orders", ID: fmt.Sprint(i)} }
	const n = 2000 // 117 MiB
	for i := range n {
		m.keep(stored{message: halfmsg.Message{Name: name(i), Body: body}, created: 1})
	}
	m.keep(stored{message: halfmsg.Message{Name: name(n), Body: make([]byte, rememberable)}, created: 1})
	if held := len(m.newer) + len(m.older); held > 2*(memoryBytes/len(body)+1) {
		t.Errorf("%d messages of %d bytes are held", held, len(body))
	}
	for i, want := range map[int]bool{0: false, n - 100: true, n - 1: true, n: false} {
		if got := m.takeMessage(name(i)).created != 0; got != want {
			t.Errorf("message %d is known: %t", i, got)
		}
	}
	if m.takeMessage(name(n-1)).created != 0 {
		t.Error("a message that was taken is not forgotten")
	}
}
