package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
)

// heap is what is in use after a collection.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// A topic may hold more than fits in memory. The rule refuses each letter, so the cluster of this process gets no copy.
//
//nolint:paralleltest // the heap is that of the process
func TestReplayHoldsSomeBodies(t *testing.T) {
	const letters, bodyBytes = 60, 900 << 10
	k := graveyard(t)
	for i := range letters {
		letter := dead(fmt.Sprint(i))
		letter.Value = make([]byte, bodyBytes)
		bury(t, k, letter)
	}
	before, most, asked := heap(), int64(0), 0
	_, err := deadLetters(t, k).ReplaySelected(t.Context(), consumer.Selection{MayReplay: func(*consumer.Letter) error {
		if asked++; asked%10 == 0 {
			most = max(most, heap()-before)
		}
		return errors.New("not now")
	}})
	if asked != letters || err == nil || most > letters*bodyBytes/2 {
		t.Errorf("%d letters were looked at, with %d MiB in memory, %v", asked, most>>20, err)
	}
}

// The topic is made again between two rounds of a replay. What stands at the place of a letter now was not selected.
func TestNewTopicsLetterIsLeftOut(t *testing.T) {
	t.Parallel()
	const count = 20 // two rounds
	k := graveyard(t)
	fill := func(name string) {
		var letters []*kgo.Record
		for i := range count {
			letter := dead(fmt.Sprint(name, i))
			letter.Partition, letter.Value = 0, make([]byte, 900<<10)
			letters = append(letters, letter)
		}
		produceTo(t, k, letters...)
	}
	fill("first")
	asked := map[string]bool{}
	_, err := deadLetters(t, k).ReplaySelected(t.Context(), consumer.Selection{MayReplay: func(l *consumer.Letter) error {
		if len(asked) == 0 {
			remove(t, k, "payments.dead")
			k.Topic("payments.dead", nil)
			fill("second")
		}
		asked[l.ID] = true
		return errors.New("not now")
	}})
	if err == nil || !asked["first0"] || asked[fmt.Sprint("second", count-1)] {
		t.Errorf("looked at %v, %v", slices.Sorted(maps.Keys(asked)), err)
	}
}
