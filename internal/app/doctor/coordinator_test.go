package doctor

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

func TestWaitingMessagesAreFound(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		state pb.State
		count int64
		late  time.Duration
		want  string
	}{
		{pb.State_STATE_DEAD, 3, 0, "3 messages are dead"},
		{pb.State_STATE_ABANDONED, 1, 0, "1 messages are abandoned"},
		{pb.State_STATE_SENDABLE, 9, 90 * time.Second, "of 9 sendable messages the first has been due for 1 min 30 s"},
		{pb.State_STATE_SENDABLE, 9, 30 * time.Second, ""},
		{pb.State_STATE_SENDABLE, 9, -15 * time.Minute, ""},
		{pb.State_STATE_SENDABLE, 0, 0, ""},
		{pb.State_STATE_PENDING, 5, time.Hour, ""},
		{pb.State_STATE_DEAD, 0, 0, ""},
	} {
		stat := &adminv1.StateStats{State: c.state, Count: c.count, FirstDueTime: timestamppb.New(now.Add(-c.late))}
		if c.state == pb.State_STATE_SENDABLE { // at any age: the message may have a delay
			stat.OldestCreateTime = timestamppb.New(now.Add(-time.Hour))
		}
		var r report
		r.waiting([]*adminv1.StateStats{stat}, now)
		found := r.all
		switch {
		case c.want == "" && len(found) > 0:
			t.Errorf("%v: found %+v", stat, found)
		case c.want != "" && (len(found) != 1 || !strings.Contains(found[0].What, c.want)):
			t.Errorf("%v: found %+v, want %s", stat, found, c.want)
		}
	}
}

func TestMessagesPastTheirAgeAreNamed(t *testing.T) {
	t.Parallel()
	var r report
	r.waiting([]*adminv1.StateStats{{State: pb.State_STATE_ABANDONED, Count: 2}}, time.Now())
	r.timedOut(failures{})
	if got, want := r.all[0].What, "2 messages are abandoned"; got != want {
		t.Errorf("with a coordinator missing: %q, want %q", got, want)
	}
	r.timedOut(failures{found: 1, first: &adminv1.MessageRecord{
		Producer: "away", Message: &pb.Message{Id: "1"}, LastError: "confirm.give_up_after (8s) has passed: refused",
	}})
	const want = "2 messages are abandoned; given up at the time limit: 1, such as away/1: " +
		"confirm.give_up_after (8s) has passed: refused"
	if got := r.all[0].What; len(r.all) != 1 || got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
