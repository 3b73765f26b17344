package cli

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/cli/commandline"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

type dlqQueuesCommand struct {
	adminFlags
	watchFlags
}

// Help returns the text below the usage in --help.
func (c *dlqQueuesCommand) Help() string {
	return `The coordinator asks its brokers: no letter is looked at. The queues are those of dead_letters and of
events.dead_letter_queues in its configuration. A count with ~ counts settled letters too, as on Kafka.`
}

// letterQueue is a queue of dead letters in --output json. The names of its fields are part of the product.
type letterQueue struct {
	Name   string `json:"name"`
	Queue  string `json:"queue"`
	Broker string `json:"broker,omitempty"`
	// Letters is missing where the broker has not said so.
	Letters      *int64     `json:"letters,omitempty"`
	AtMost       bool       `json:"at_most,omitempty"`
	WaitingSince *time.Time `json:"waiting_since,omitempty"`
	Trouble      string     `json:"trouble,omitempty"`
}

func newLetterQueue(q *adminv1.DeadLetterQueue) letterQueue {
	out := letterQueue{
		Name: q.GetName(), Queue: q.GetQueue(), Broker: q.GetBroker(), AtMost: q.GetCountAtMost(),
		WaitingSince: moment(q.GetOldestTime()), Trouble: q.GetProblem(),
	}
	if q.GetCount() != nil {
		out.Letters = &q.Count.Value
	}
	return out
}

// Run prints the queues.
func (c *dlqQueuesCommand) Run(ctx context.Context, s *commandline.Session) error {
	return c.runAsking(ctx, s, &c.adminFlags, func(ctx context.Context, s *commandline.Session, a *admin) error {
		found, err := a.client.ListDeadLetterQueues(ctx, &adminv1.ListDeadLetterQueuesRequest{})
		if err != nil {
			return err
		}
		queues := make([]letterQueue, len(found.GetQueues()))
		for i, q := range found.GetQueues() {
			queues[i] = newLetterQueue(q)
		}
		return s.PrintDocument(c.Output, map[string]any{"queues": queues}, func() [][]string {
			return letterQueueRows(queues, time.Now())
		})
	})
}

func letterQueueRows(queues []letterQueue, now time.Time) [][]string {
	if len(queues) == 0 {
		return [][]string{{"no queues: the coordinator's configuration names none in dead_letters"}}
	}
	rows := [][]string{{"NAME", "LETTERS", "OLDEST", "QUEUE", "BROKER", "TROUBLE"}}
	for _, q := range queues {
		letters := "?"
		if q.Letters != nil {
			letters = map[bool]string{true: "~"}[q.AtMost] + strconv.FormatInt(*q.Letters, 10)
		}
		rows = append(rows, []string{
			q.Name, letters, ageAt(q.WaitingSince, now), q.Queue, cmp.Or(q.Broker, "(default)"), cmp.Or(q.Trouble, "-"),
		})
	}
	return rows
}
