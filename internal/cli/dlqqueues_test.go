package cli_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// ListDeadLetterQueues returns the planted queues.
func (c *coordinator) ListDeadLetterQueues(
	context.Context, *adminv1.ListDeadLetterQueuesRequest,
) (*adminv1.ListDeadLetterQueuesResponse, error) {
	return &adminv1.ListDeadLetterQueuesResponse{Queues: c.queues}, c.err
}

func plantedQueues() []*adminv1.DeadLetterQueue {
	return []*adminv1.DeadLetterQueue{
		{
			Name: "payments", Queue: "payments.dead", Count: wrapperspb.Int64(12),
			OldestTime: timestamppb.New(time.Now().Add(-2*time.Hour - time.Minute)),
		},
		{Name: "events", Queue: "events.dead", Broker: "log", Count: wrapperspb.Int64(7), CountAtMost: true},
		{Name: "away", Queue: "away.dead", Problem: "connection refused"},
	}
}

func TestQueuesOfDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	run(nil, "dlq", "queues", "--server="+c.addr).want(t, 0, "no queues", "")
	c.queues = plantedQueues()
	run(nil, "dlq", "queues", "--server="+c.addr).want(t, 0,
		`NAME       LETTERS   OLDEST    QUEUE           BROKER      TROUBLE
payments   12        2 h ago   payments.dead   (default)   -
events     ~7        -         events.dead     log         -
away       ?         -         away.dead       (default)   connection refused
`, "")
}
