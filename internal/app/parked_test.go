package app

import (
	"errors"
	"maps"
	"testing"
)

// An outage of Redis must not look as if the messages of an unknown broker were gone.
func TestParkedCountsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	u := &unworked{}
	u.noteParked(map[string]int64{"": 1, "known": 2, "gone": 3}, nil, []string{"known"}, false)
	u.noteParked(nil, errors.New("redis is away"), []string{"known"}, false)
	u.noteParked(map[string]int64{"gone": 2, "other": 1}, nil, []string{"known"}, true)
	if got := u.parked.all(); !maps.Equal(got, map[string]int64{"gone": 3, "other": 1}) {
		t.Errorf("messages of unknown brokers: %v", got)
	}
}
