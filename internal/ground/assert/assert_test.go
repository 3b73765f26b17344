package assert_test

import (
	"slices"
	"testing"

	"github.com/msghandler/msghandler/internal/ground/assert"
)

func TestBrokenAssertionsAreCounted(t *testing.T) {
	before := assert.Broken()
	assert.Always(true, "holds")
	assert.Always(false, "does not hold", "orders", "1") // without a watcher nothing else happens
	assert.Unreachable("is reached")
	if got := assert.Broken() - before; got != 2 {
		t.Errorf("%d assertions are counted as broken, want 2", got)
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
