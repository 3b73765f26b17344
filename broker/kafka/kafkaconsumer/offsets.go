package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// offsets are the bounds of a partition: the offset of the first record, and the offset after the last.
type offsets struct{ start, end int64 }

// topicOffsets asks for the bounds of each partition of a topic.
func topicOffsets(ctx context.Context, client *kgo.Client, topic string) (map[int32]offsets, error) {
	admin := kadm.NewClient(client)
	starts, err := allListed(admin.ListStartOffsets(ctx, topic))
	if err != nil {
		return nil, err
	}
	ends, err := allListed(admin.ListEndOffsets(ctx, topic))
	if err != nil {
		return nil, err
	}
	all := map[int32]offsets{}
	for number, start := range starts[topic] {
		end, found := ends.Lookup(topic, number)
		if !found {
			return nil, fmt.Errorf("ask for the offsets: partition %d has no answer", number)
		}
		all[number] = offsets{start.Offset, end.Offset}
	}
	return all, nil
}

// allListed refuses an answer that lacks the offset of a partition.
func allListed(listed kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
	if err == nil {
		err = listed.Error()
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.TopicAuthorizationFailed):
		return nil, fmt.Errorf("look up the topic: %w; name the dead-letter topic, such as GROUP.dead, "+
			"and check the user's permissions", err)
	case err != nil:
		return nil, fmt.Errorf("ask for the offsets: %w", err)
	}
	return listed, nil
}
