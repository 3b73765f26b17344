package kafkaconsumer

import (
	"context"
	"log/slog"

	"github.com/msghandler/msghandler/consumer/adapter"
)

// reportDeadLetters reports how many records the dead-letter topic has. Settled letters and their settlements count
// until the letters before them are settled: to count the open letters alone would be to read the whole topic.
func (r *run) reportDeadLetters() {
	if r.Observer == (adapter.Unobserved{}) {
		return
	}
	ctx, cancel := context.WithTimeout(r.stopping, answerTimeout)
	defer cancel()
	found, err := topicOffsets(ctx, r.producer.Client(), r.DeadTopic)
	if err != nil {
		if r.stopping.Err() == nil {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "dead letters not counted; the metric keeps its last value; "+
				"create the dead-letter topic, or set Create", slog.String("topic", r.DeadTopic), slog.Any("cause", err))
		}
		return
	}
	r.Observer.DeadLetters(r.DeadTopic, records(found))
}

// records is the number of records in the partitions of a topic.
func records(partitions map[int32]offsets) (all int) {
	for _, partition := range partitions {
		all += int(partition.end - partition.start)
	}
	return all
}
