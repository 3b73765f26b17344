package cli

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

func TestTopSortsAsTheKeysSay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-d)) }
	groups := []group{
		{Count: 3, Producer: "orders", OldestAt: moment(ago(time.Hour))},
		{Count: 9, Producer: "stock"},
		{Count: 4, Producer: "billing", OldestAt: moment(ago(2 * time.Hour))},
	}
	producers := []*adminv1.ProducerStats{
		{Name: "orders", StoredPerSecond: 3, LastAnswerTime: ago(time.Hour)},
		{Name: "stock", StoredPerSecond: 9},
		{Name: "billing", StoredPerSecond: 4, LastAnswerTime: ago(2 * time.Hour)},
	}
	for order, want := range map[order]string{
		byCount: "stock billing orders", byAge: "billing orders stock", byName: "billing orders stock",
	} {
		var sorted, names []string
		for _, g := range order.groups(groups) {
			sorted = append(sorted, g.Producer)
		}
		for _, p := range order.producers(producers) {
			names = append(names, p.GetName())
		}
		if strings.Join(sorted, " ") != want || strings.Join(names, " ") != want {
			t.Errorf("by %s: groups of %v, producers %v", order, sorted, names)
		}
	}
}
