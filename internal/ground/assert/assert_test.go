package assert_test

import (
	"slices"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/assert"
)

func TestBrokenAssertionsAreCounted(t *testing.T) {
	assert.Always(true, "counted: holds")
	for range 2 {
		assert.Always(false, "counted: does not hold", "orders", "1") // without a watcher nothing else happens
	}
	assert.Unreachable("counted: is reached")
	want := map[string]int64{"counted: holds": 0, "counted: does not hold": 2, "counted: is reached": 1}
	for rule, times := range want {
		if got := assert.Broken()[rule]; got != times {
			t.Errorf("%q is counted %d times, want %d", rule, got, times)
		}
	}
}

func TestWatchersAreTold(t *testing.T) {
	var told []string
	before := assert.Watch(&assert.Watcher{
		Broken:  func(rule, about string) { told = append(told, rule+": "+about) },
		Reached: func(rule string) { told = append(told, rule) },
	})
	defer assert.Watch(before)
	assert.Always(true, "holds", "orders", "1")
	assert.Always(false, "does not hold", "orders", "1")
	assert.Unreachable("is reached", "orders", "2")
	assert.Sometimes(false, "is not seen")
	assert.Sometimes(true, "is seen")
	want := []string{"does not hold: orders/1", "is reached: orders/2", "is seen"}
	if !slices.Equal(told, want) {
		t.Errorf("the watcher got %q, want %q", told, want)
	}
}

func TestAssertionsThatHoldAllocateNothing(t *testing.T) {
	producer, id := "orders", "1"
	allocated := testing.AllocsPerRun(100, func() {
		assert.Always(producer != id, "holds", producer, id)
		assert.Sometimes(producer != id, "is seen")
	})
	if allocated != 0 {
		t.Errorf("assertions allocate %v times", allocated)
	}
}
