package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// No process lives to see a message fail that ends the processes which handle it, and Kafka counts no deliveries. So a
// consumer that gets a partition commits the offset of its first message before the handling, with metadata that say
// how often the handling was begun. The metadata go with the next commit: after the message, or when a handler has told
// how it ended. What is left counts processes that told nothing.

// metaBegun begins such metadata; the number follows.
const metaBegun = "msghandler-begun:"

const (
	// carefulFrom is how many processes must have told nothing for a careful consumer: it handles the first message alone,
	// so that no message of another partition can end the process meanwhile, and commits after each message, so that the
	// count is that of the deadly message itself and not of one before it.
	carefulFrom = 3
	// carefulMessages is how many messages a careful consumer commits one by one. Each is progress, so when the deadly
	// message comes later, the next process begins nearer.
	carefulMessages = 1000
	// mostBegun is how many processes may have told nothing before the message becomes a dead letter without its handler.
	mostBegun = 20
)

// unexplained is how often the handling of the message at an offset was begun by processes that told nothing.
type unexplained struct {
	offset int64
	times  int
}

// fetched reads the metadata of the group's offsets, before the first message of each new partition comes.
func (in *intake) fetched(_ context.Context, _ *kgo.Client, response *kmsg.OffsetFetchResponse) error {
	for _, group := range response.Groups {
		for _, topic := range group.Topics {
			for _, offset := range topic.Partitions {
				if offset.Metadata == nil {
					continue
				}
				if times, is := strings.CutPrefix(*offset.Metadata, metaBegun); is {
					in.unexplained(source{topic.Topic, offset.Partition}, unexplained{offset.Offset, deadletter.Count(times)})
				}
			}
		}
	}
	return nil
}

func (in *intake) unexplained(of source, before unexplained) {
	in.mu.Lock()
	p := in.partitions[of]
	in.mu.Unlock()
	if p != nil {
		p.mu.Lock()
		p.before = before
		p.mu.Unlock()
	}
}

// begunBefore is how often the handling of a message was begun by processes that told nothing.
func (p *partition) begunBefore(record *kgo.Record) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before.offset != record.Offset {
		return 0
	}
	return p.before.times
}

// overBegun rejects a message that ends the processes which handle it.
func overBegun(times int) error {
	if times <= mostBegun {
		return nil
	}
	return consumer.Reject(fmt.Errorf("its handling was begun %d times, and no process told how its handling ended: "+
		"does the handler end its process", times))
}

// noteBegun commits the offset of a message that is not handled yet, with the number of processes that have begun to
// handle it, or 0 when the last one has told how it ended. Without the commit the number stays what it was.
func (p *partition) noteBegun(record *kgo.Record, times int) {
	metadata := ""
	if times > 0 {
		metadata = metaBegun + strconv.Itoa(times)
	}
	err := p.in.inTime(func(ctx context.Context) (err error) {
		ctx = kgo.PreCommitFnContext(ctx, func(request *kmsg.OffsetCommitRequest) error {
			if p.isLost() { // the cluster would take the commit, and take messages back from the new consumer
				return errMoved
			}
			for i := range request.Topics {
				for j := range request.Topics[i].Partitions {
					request.Topics[i].Partitions[j].Metadata = &metadata
				}
			}
			return nil
		})
		at := map[int32]kgo.EpochOffset{p.source.partition: {Epoch: record.LeaderEpoch, Offset: record.Offset}}
		p.in.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{p.source.topic: at},
			func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, failed error) {
				if err = failed; err == nil {
					err = refusedCommit(response)
				}
			})
		return err
	})
	if err != nil {
		p.run.Logger.LogAttrs(p.run.work, slog.LevelDebug, "begun handling not counted; a message that ends its process "+
			"is redelivered once more", slog.Any("cause", err))
	}
}

// errMoved: another consumer has the partition.
var errMoved = errors.New("the partition has moved")

func (p *partition) isLost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// commitCarefully commits after a message, where the partition is to be consumed carefully, and goes on only then.
func (p *partition) commitCarefully() {
	if p.careful == 0 {
		return
	}
	p.careful--
	for p.ending.Err() == nil && p.in.commit() != nil {
		_ = backoff.Sleep(p.ending, pollPause) // an error is that of the context: the loop ends
	}
}

// enter waits for a slot, or for all slots where a message is to be handled alone; false when ending ends before.
func (r *run) enter(ending context.Context, alone bool) (leave func(), entered bool) {
	held, want := 0, 1
	leave = func() {
		for range held {
			<-r.slots
		}
		if want > 1 {
			<-r.alone
		}
	}
	if alone && cap(r.slots) > 1 {
		select {
		case r.alone <- struct{}{}:
			want = cap(r.slots)
		case <-ending.Done():
			return nil, false
		}
	}
	for held < want {
		select {
		case r.slots <- struct{}{}:
			held++
		case <-ending.Done():
			leave()
			return nil, false
		}
	}
	return leave, true
}
