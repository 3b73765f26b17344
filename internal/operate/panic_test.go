package operate

import (
	"context"
	"strings"
	"testing"
)

// brittle panics at each count.
type brittle struct{ DeadLetters }

func (brittle) Depth(context.Context) (int, error) { panic("a letter that no reader can take") }

// Queues are counted in goroutines of their own, where net/http recovers no panic.
func TestPanicOfQueueIsItsProblem(t *testing.T) {
	t.Parallel()
	desk := &Desk{queues: []*queue{newQueue(Source{Name: "dead"}, brittle{}, shared)}}
	desk.Measure(t.Context())
	if states := desk.Queues(t.Context()); len(states) != 1 || states[0].Count != nil ||
		!strings.Contains(states[0].GetProblem(), "no reader can take") {
		t.Errorf("the queues are %+v", states)
	}
}
