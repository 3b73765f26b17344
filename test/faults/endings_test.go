package faults

import (
	"slices"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/wire"
)

// refusedPoints are the points of a message whose business rolled back, from its verdict on.
var refusedPoints = []point{
	{
		name: "rolled_back_before", event: "move", phase: wire.Request, word: "rolled_back", state: pb.State_STATE_PENDING,
		leased: true,
	},
	{name: "rolled_back_after", event: "move", phase: wire.Reply, word: "rolled_back", state: pb.State_STATE_ROLLED_BACK},
	{name: "rolled_back_delete_before", event: "DeleteBusiness", phase: wire.Request, state: pb.State_STATE_ROLLED_BACK},
	{name: "rolled_back_delete_after", event: "DeleteBusiness", phase: wire.Reply, state: pb.State_STATE_ROLLED_BACK},
}

// markedPoints are the points of a committed message whose marker is deleted after the acknowledgement, from the
// acknowledgement on.
var markedPoints = []point{
	{
		name: "acked_marked_before", event: "move", phase: wire.Request, word: "acked_marked", state: pb.State_STATE_SENDABLE,
		leased: true, twice: true,
	},
	{
		name: "acked_marked_after", event: "move", phase: wire.Reply, word: "acked_marked",
		state: pb.State_STATE_ACKNOWLEDGED, leased: true,
	},
	{
		name: "late_delete_before", event: "DeleteBusiness", phase: wire.Request, state: pb.State_STATE_ACKNOWLEDGED,
		leased: true,
	},
	{
		name: "late_delete_after", event: "DeleteBusiness", phase: wire.Reply, state: pb.State_STATE_ACKNOWLEDGED,
		leased: true,
	},
	{
		name: "marker_deleted_before", event: "move", phase: wire.Request, word: "marker_deleted",
		state: pb.State_STATE_ACKNOWLEDGED, leased: true,
	},
	{
		name: "marker_deleted_after", event: "move", phase: wire.Reply, word: "marker_deleted",
		state: pb.State_STATE_DONE,
	},
}

// refusedRows kill where nothing is to be delivered.
var refusedRows = func() (rows []row) {
	for _, p := range refusedPoints {
		rows = append(rows, pointRow(p))
	}
	return rows
}()

// markedRows kill where a marker is the last that is left of a message.
var markedRows = func() (rows []row) {
	for _, p := range markedPoints {
		r := pointRow(p)
		r.world.settings, r.judge = []string{"MSGHANDLER_DELETE_BUSINESS_WHEN=after_ack"}, judgeDeletions
		rows = append(rows, r)
	}
	return rows
}()

// judgeDeletions judges as after every kill, and demands that no delivered message has its marker in the end: the
// store holds the pending deletion, which outlives the coordinator that was about to delete the marker.
func judgeDeletions(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	judgeKills(t, w, l, end)
	kept := func() []string {
		return slices.DeleteFunc(l.remainingMarkers(t, w, nil, 0),
			func(key string) bool { return w.ledger.Delivered(key) == 0 })
	}
	for deadline := time.Now().Add(deletion); len(kept()) > 0 && time.Now().Before(deadline); {
		wait(200 * time.Millisecond)
	}
	for _, key := range kept() {
		t.Errorf("%s was delivered, and its marker is still there\n%s", key, w.ledger.History(key))
	}
}
