package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/broker/rabbitmq"
)

const areaDeadLetters = "dead letters"

// examineDeadLetters looks for dead-letter queues that lose letters, among the queues of events.dead_letter_queues, of
// dead_letters and of the examination. No letter is consumed.
func examineDeadLetters(ctx context.Context, e Examination) []Finding {
	r := report{area: areaDeadLetters}
	queues := slices.Concat(e.Settings.Events.DeadLetterQueues, e.DeadLetterQueues)
	for name, letters := range e.Settings.DeadLetters {
		if _, key := e.Settings.LettersURL(name); key == "amqp.url" {
			queues = append(queues, letters.Queue)
		}
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	if len(queues) == 0 {
		return nil
	}
	limited, missing, err := rabbitmq.LimitedQueues(
		ctx,
		rabbitmq.Config{URL: strings.Join(e.Settings.AMQP.URLs, ","), Logger: slog.New(slog.DiscardHandler)},
		queues...)
	if err != nil {
		return nil // examineBroker says why
	}
	for _, queue := range limited {
		r.limited(queue)
	}
	for _, queue := range missing {
		r.warn("dead-letters-missing", fmt.Sprintf("dead-letter queue %s does not exist", queue),
			"RabbitMQ drops a dead letter that no queue takes, and msghandler dlq finds none", "correct the name in "+
				"events.dead_letter_queues or --dead-letters, or the virtual host in amqp.url; or start the consumer that "+
				"declares it")
	}
	return r.orOK(fmt.Sprintf("no delivery limit on %d dead-letter queues", len(queues)))
}

func (r *report) limited(queue rabbitmq.LimitedQueue) {
	what := fmt.Sprintf("dead-letter queue %s has a delivery limit of %d", queue.Name, queue.Limit)
	remedy := "no policy lifts a limit that a queue was declared with: replay its dead letters, delete the queue, and " +
		"let the consumer declare it again"
	if queue.Policy != "" {
		what += ", unless a policy lifts it: policies cannot be seen over AMQP"
		remedy = "where rabbitmqctl list_policies does not show it: " + queue.Policy
	}
	r.warn(
		"dead-letters-limited",
		what,
		"RabbitMQ drops a dead letter that comes back more often, because a client or the management "+
			"interface looks at it, or ends while it looks; msghandler dlq replaces such dead letters by copies at the "+
			"queue's end",
		remedy,
	)
}
