package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// No process lives to see a message fail that ends the processes which handle it, and Kafka counts no deliveries. So a
// consumer that gets a partition commits the offset of its first message before each handling, with metadata that say
// how many processes have begun a handling and told nothing. While the message waits for its next handling, this
// process does not count. The metadata go with the commit after the message, and at the stop of the consumer.

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
	// longPause is a pause between two handlings in which the count is set back: two commits are short beside it.
	longPause = 50 * time.Millisecond
	// noteTimeout bounds a commit of the count, and shortTimeout a commit after one that failed. While the group's
	// coordinator is away, messages are handled without the count.
	noteTimeout, shortTimeout = 2 * time.Second, 200 * time.Millisecond
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
	if offset, is := in.excused[of]; is && offset == before.offset {
		before.times = max(before.times-1, 0)
	}
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

// begunNote is what the group's offset says of a message that is not settled.
type begunNote struct {
	partition *partition
	record    *kgo.Record

	mu sync.Mutex
	// counts: the message is the first of its partition, its handler is called, and may yet end its process.
	counts bool
	// before is how many processes told nothing before this one, and noted what the offset says; -1: not known.
	before, noted int
}

func (p *partition) newNote(record *kgo.Record, first bool) *begunNote {
	n := &begunNote{partition: p, record: record}
	if first {
		n.before = p.begunBefore(record)
		n.noted = n.before
		n.counts = overBegun(n.before) == nil
		p.mu.Lock()
		p.note = n
		p.mu.Unlock()
	}
	return n
}

// begin counts this process, until its handler tells how it ended.
func (n *begunNote) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set(n.before+1) == nil {
		n.partition.in.excuse(n.partition.source, -1)
	}
}

// pause waits before the next handling; false when the partition ends before. A pause takes no longer by its commit.
func (n *begunNote) pause(delay time.Duration) bool {
	begun := time.Now()
	if delay >= longPause {
		n.mu.Lock()
		_ = n.set(n.before) // an error is logged
		n.mu.Unlock()
	}
	if backoff.Sleep(n.partition.ending, delay-time.Since(begun)) != nil {
		n.end(false)
		return false
	}
	return true
}

// end sets the count back when this consumer handles the message no more: this process goes on, or it stops. A stop
// begins the count anew. A partition may move because another process has ended: its count stays. When the message is
// settled, the next commit is that of the offset after the message.
func (n *begunNote) end(settled bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, counted := n.partition, n.noted != n.before
	lost := p.isLost()
	switch {
	case !n.counts, settled && !lost:
	case lost && counted:
		p.in.excuse(p.source, n.record.Offset)
	case !lost:
		back := n.before // the goroutine of the partition reads before without the lock
		if p.run.stopping.Err() != nil {
			back = 0
		}
		if n.set(back) != nil {
			p.in.excuse(p.source, n.record.Offset)
		}
	}
	n.counts = false
}

// set notes a number of processes; n.mu is held.
func (n *begunNote) set(times int) error {
	if !n.counts || n.noted == times {
		return nil
	}
	within := noteTimeout
	if n.noted < 0 {
		within = shortTimeout
	}
	n.noted = times
	err := n.partition.noteBegun(n.record, times, within)
	if err != nil {
		n.noted = -1
	}
	return err
}

// excuse remembers that this process goes on although the count of a message may contain it; no message has the offset
// -1. The group takes the count back from no process that has lost the partition.
func (in *intake) excuse(of source, offset int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.excused[of] = offset
}

// noteBegun commits the offset of a message that is not handled yet, with a number of processes. Without the commit the
// number stays what it was.
func (p *partition) noteBegun(record *kgo.Record, times int, within time.Duration) error {
	metadata := ""
	if times > 0 {
		metadata = metaBegun + strconv.Itoa(times)
	}
	err := p.in.inTime(within, func(ctx context.Context) (err error) {
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
	return err
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
	commit := p.in.commit
	for p.ending.Err() == nil && commit() != nil {
		// The first failure is logged. An error of Sleep is that of the context: the loop ends.
		commit = func() error { return p.in.inTime(commitTimeout, p.in.client.CommitMarkedOffsets) }
		_ = backoff.Sleep(p.ending, pollPause)
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
