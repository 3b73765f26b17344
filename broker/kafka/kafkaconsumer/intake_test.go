package kafkaconsumer

import (
	"context"
	"log/slog"
	"testing"
)

// The client gives a topic that was made again anew, and may not take the first one back before.
func TestPartitionGivenAnewEndsTheFirst(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	r := &run{Config: Config{Logger: slog.New(slog.DiscardHandler), Consuming: func() {}}, stopping: stopping}
	in := &intake{run: r, partitions: map[source]*partition{}}
	var given [2]*partition
	for i := range given {
		in.assigned(t.Context(), nil, map[string][]int32{"orders": {0}})
		given[i] = in.partitions[source{"orders", 0}]
	}
	if given[0].ending.Err() == nil || given[1].ending.Err() != nil {
		t.Errorf("the first partition ends with %v, and the second with %v", given[0].ending.Err(), given[1].ending.Err())
	}
	stop()
	for _, p := range given {
		if err := p.working.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
