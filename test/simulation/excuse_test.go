package simulation

import (
	"testing"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A fault excuses parked messages only in the state and of the producers that it can reach.
func TestFaultsExcuseWhatTheyReach(t *testing.T) {
	const dead, abandoned = pb.State_STATE_DEAD, pb.State_STATE_ABANDONED
	for _, c := range []struct {
		fault, key string
		state      pb.State
		want       bool
	}{
		{"nacks", "attending/1", dead, true},
		{"nacks", "called/1", abandoned, false},
		{"half answers", "called/1", abandoned, true},
		{"half answers", "called/1", dead, false},
		{"half answers", "marking-attending/1", abandoned, true},
		{"HTTP pages", "web/1", abandoned, false},
		{"database replaced", "marking-attending/1", abandoned, true},
		{"database replaced", "called/1", abandoned, false},
		{"cuts", "called/1", dead, false},
	} {
		s := standing{c.key, &adminv1.MessageRecord{State: c.state}}
		if got := excuseOf(t, c.fault).parks(s); got != c.want {
			t.Errorf("%s excuses that %s is %v: %t, want %t", c.fault, c.key, c.state, got, c.want)
		}
	}
}

func excuseOf(t *testing.T, name string) excuse {
	t.Helper()
	for _, f := range allFaults {
		if f.name == name {
			return f.excuse
		}
	}
	t.Fatalf("there is no fault %s", name)
	return excuse{}
}
