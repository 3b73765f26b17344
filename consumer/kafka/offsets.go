package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsets are the bounds of a partition: the offset of the first record, and the offset after the last.
type offsets struct{ start, end int64 }

// The times by which Kafka finds the bounds of a partition.
const (
	earliestOffset = -2
	latestOffset   = -1
)

// topicOffsets asks for the bounds of each partition of a topic.
func topicOffsets(ctx context.Context, client *kgo.Client, topic string) (map[int32]offsets, error) {
	numbers, err := topicPartitions(ctx, client, topic)
	if err != nil {
		return nil, err
	}
	starts, err := listOffsets(ctx, client, topic, numbers, earliestOffset)
	if err != nil {
		return nil, err
	}
	ends, err := listOffsets(ctx, client, topic, numbers, latestOffset)
	if err != nil {
		return nil, err
	}
	all := map[int32]offsets{}
	for _, number := range numbers {
		all[number] = offsets{starts[number], ends[number]}
	}
	return all, nil
}

// topicPartitions asks for the partitions of a topic.
func topicPartitions(ctx context.Context, client *kgo.Client, topic string) (numbers []int32, err error) {
	request := kmsg.NewPtrMetadataRequest()
	of := kmsg.NewMetadataRequestTopic()
	of.Topic = &topic
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("look up the topic: %w", err)
	}
	for i := range response.Topics {
		if err := kerr.ErrorForCode(response.Topics[i].ErrorCode); err != nil {
			return nil, fmt.Errorf("look up the topic: %w; name the dead-letter topic, such as GROUP.dead, "+
				"and check the user's permissions", err)
		}
		for _, p := range response.Topics[i].Partitions {
			numbers = append(numbers, p.Partition)
		}
	}
	return numbers, nil
}

// listOffsets asks for one bound of each partition.
func listOffsets(
	ctx context.Context, client *kgo.Client, topic string, numbers []int32, bound int64,
) (map[int32]int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = topic
	for _, number := range numbers {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = number, bound
		of.Partitions = append(of.Partitions, p)
	}
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask for the offsets: %w", err)
	}
	found := map[int32]int64{}
	for i := range response.Topics {
		for _, p := range response.Topics[i].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("ask for the offsets of partition %d: %w", p.Partition, err)
			}
			found[p.Partition] = p.Offset
		}
	}
	if len(found) < len(numbers) {
		return nil, fmt.Errorf("ask for the offsets: %d of the %d partitions have no answer", len(numbers)-len(found),
			len(numbers))
	}
	return found, nil
}

// deleteRecords deletes the records of partitions before the offsets, where the user may.
func deleteRecords(ctx context.Context, client *kgo.Client, topic string, before map[int32]int64) {
	if len(before) == 0 {
		return
	}
	request := kmsg.NewPtrDeleteRecordsRequest()
	of := kmsg.NewDeleteRecordsRequestTopic()
	of.Topic = topic
	for number, offset := range before {
		p := kmsg.NewDeleteRecordsRequestTopicPartition()
		p.Partition, p.Offset = number, offset
		of.Partitions = append(of.Partitions, p)
	}
	request.Topics = append(request.Topics, of)
	_, _ = request.RequestWith(ctx, client) // records that stay are settled all the same
}
