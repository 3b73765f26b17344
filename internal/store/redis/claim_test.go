package redis

import (
	"slices"
	"testing"
)

// Room for bytes that small shares leave free goes to the shares behind them.
func TestSmallSharesAreClaimedFirst(t *testing.T) {
	t.Parallel()
	parts := cutGroups([]dueGroup{
		{producer: "large", take: 12}, {producer: "small", take: 1}, {producer: "some", take: 7},
	}, 20)
	if len(parts) != 1 {
		t.Fatalf("20 messages in %d calls of 20", len(parts))
	}
	if pairs := parts[0].pairs(); !slices.Equal(pairs, []any{"small", 1, "some", 7, "large", 12}) {
		t.Errorf("%v", pairs)
	}
}
