package kafkaconsumer

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// partition handles the messages of one partition, one after another, while this consumer has the partition.
type partition struct {
	run    *run
	in     *intake
	source source
	// ending ends when the consumer stops or the partition moves; stop ends it.
	ending context.Context
	stop   context.CancelFunc
	// working has the one goroutine of the partition.
	working lifecycle.Group

	mu     sync.Mutex
	queue  []*kgo.Record
	paused bool
	// lost: another consumer has the partition, so nothing may be committed.
	lost bool
	// next is the offset after the last handled message, and high the offset after the partition's last message.
	next, high int64
	// before is how often the handling of the first message was begun and not ended, as the group's offset says.
	before unexplained
	// note is what the group's offset says of the first message, while the message is here.
	note *begunNote
	// careful is how many more messages are committed one by one. Only the goroutine of the partition uses it.
	careful int
	// filled has an element when the queue is not empty.
	filled chan struct{}
}

func newPartition(in *intake, of source) *partition {
	p := &partition{run: in.run, in: in, source: of, filled: make(chan struct{}, 1)}
	p.ending, p.stop = context.WithCancel(in.run.stopping)
	return p
}

// lose forbids commits: after lose, no offset is marked any more.
func (p *partition) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
}

// giveUp forbids commits of partitions whose handlers still run. The handlers have not ended their process.
func giveUp(partitions []*partition) {
	var calls lifecycle.Group
	for _, p := range partitions {
		calls.Go(func() {
			p.mu.Lock()
			note := p.note
			p.mu.Unlock()
			if note != nil {
				note.end(false)
			}
			p.lose()
		})
	}
	_ = calls.Wait(context.Background())
}

// add takes fetched messages. With more than Prefetch messages the partition is not fetched until half of them are
// left.
func (p *partition) add(records []*kgo.Record, high int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 && p.next == 0 {
		p.next = records[0].Offset
	}
	p.queue, p.high = append(p.queue, records...), high
	if !p.paused && len(p.queue) > p.run.Prefetch {
		p.paused = true
		p.in.client.PauseFetchPartitions(p.source.set())
	}
	select {
	case p.filled <- struct{}{}:
	default:
	}
}

// take returns the next message; false when the partition ends.
func (p *partition) take() (*kgo.Record, bool) {
	for {
		if p.ending.Err() != nil {
			return nil, false
		}
		if record := p.pop(); record != nil {
			return record, true
		}
		select {
		case <-p.filled:
		case <-p.ending.Done():
		}
	}
}

// pop removes the next message; nil if there is none.
func (p *partition) pop() *kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return nil
	}
	record := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	if p.paused && len(p.queue) <= p.run.Prefetch/2 {
		p.paused = false
		p.in.client.ResumeFetchPartitions(p.source.set())
	}
	return record
}

// work handles messages until the partition ends.
func (p *partition) work() {
	for first := true; ; first = false {
		record, ok := p.take()
		if !ok || !p.handle(record, first) {
			return
		}
		p.done(record)
		p.commitCarefully()
	}
}

// done lets the offset of a handled message be committed.
func (p *partition) done(record *kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.note = record.Offset+1, nil
	if !p.lost {
		p.in.client.MarkCommitRecords(record)
	}
}

// depth is how many messages of the partition are not handled yet, as far as the last fetch told.
func (p *partition) depth() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(max(p.high-p.next, 0))
}

// handle hands a message to the handler until the message is settled; false when the partition ends before. first: the
// message is the first one since this consumer got the partition.
func (p *partition) handle(record *kgo.Record, first bool) bool {
	r, note := p.run, p.newNote(record, first)
	if note.before >= carefulFrom {
		p.careful = carefulMessages
	}
	deadly := overBegun(note.before)
	m := newMessage(record, p.in.copies)
	m.Consumer = r.Name
	if p.in.copies {
		// The clock of the process that wrote the copy may be ahead by hours.
		wait := min(time.Until(dueAt(record)), r.delayOf(record.Topic))
		if backoff.Sleep(p.ending, wait) != nil {
			return false
		}
	}
	for kept := 0; ; kept++ {
		if kept > 0 && !note.pause(r.retry.Delay(kept-1)) {
			return false
		}
		leave, entered := r.enter(p.ending, note.before >= carefulFrom)
		if !entered {
			if kept > 0 {
				note.end(false)
			}
			return false
		}
		r.Observer.Begun(m.Queue)
		begun, err := time.Now(), deadly
		func() {
			defer leave()
			if deadly == nil {
				note.begin()
				err = r.handler.Handle(r.work, m)
			}
		}()
		took := time.Since(begun)
		result, settled := r.settle(record, m, err, kept)
		r.Observer.Ended(m.Queue, result, took)
		switch {
		case settled:
			note.end(true)
			return true
		case r.work.Err() != nil:
			note.end(false)
			return false
		}
	}
}
