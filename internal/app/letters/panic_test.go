package letters

import (
	"context"
	"strings"
	"testing"
)

// brittle panics at each count.
type brittle struct{ DeadLetters }

func (brittle) Depth(context.Context) (int, error) { panic("a letter that no reader can take") }

// Queues are counted in goroutines of their own, where net/http recovers no panic.
func TestPanicOfAQueueIsItsProblem(t *testing.T) {
	t.Parallel()
	desk := &Desk{queues: []*queue{{Source: Source{Name: "dead"}, dead: brittle{}, turn: make(chan struct{}, 1)}}}
	desk.Count(t.Context())
	if states := desk.Queues(t.Context()); len(states) != 1 || states[0].Known ||
		!strings.Contains(states[0].Problem, "no reader can take") {
		t.Errorf("the queues are %+v", states)
	}
}
