package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
)

// walk is a pass over a dead-letter topic.
type walk struct {
	connection kafkaconn.Config
	topic      string
	// take gets each record that is read.
	take func(p *deadPartition, record *kgo.Record)
	// copies writes replays by their keys, settlements writes each record into its own partition.
	copies, settlements *kafkaconn.Producer
	partitions          map[int32]*deadPartition
	// settled is how many letters were settled.
	settled int
}

// deadPartition is a partition of the topic, as far as it has been read.
type deadPartition struct {
	offsets
	// next is the next offset to read.
	next int64
	// open are the letters without a settlement, by their offsets.
	open map[int64]openLetter
}

// openLetter is a letter by the settlement that would settle it, and whether it matches. Only its place is kept: a
// topic may hold more than fits in memory.
type openLetter struct {
	settlement string
	matches    bool
	place
}

// walk connects, and reads the topic for the letters that match.
func (d *deadLetterTopic) walk(ctx context.Context, match func(*consumer.Letter) bool) (*walk, error) {
	w := &walk{connection: d.connection, topic: d.topic, partitions: map[int32]*deadPartition{}}
	w.take = func(p *deadPartition, record *kgo.Record) { p.keep(record, match) }
	err := w.connect(ctx)
	if err == nil {
		err = w.read(ctx)
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("read the dead-letter topic %s: %w", d.topic, err)
	}
	return w, nil
}

func (w *walk) connect(ctx context.Context) (err error) {
	connection := w.connection
	connection.Address.MaxMessage = largestCopy
	w.copies, err = kafkaconn.NewProducer(kafkaconn.ProducerConfig{Config: connection})
	if err != nil {
		return err
	}
	w.settlements, err = kafkaconn.NewProducer(kafkaconn.ProducerConfig{Config: connection, Partitioned: true})
	if err != nil {
		return err
	}
	return w.copies.Reach(ctx)
}

func (w *walk) close() {
	for _, p := range []*kafkaconn.Producer{w.copies, w.settlements} {
		if p != nil {
			p.Close()
		}
	}
}

// read reads the topic from where the last read ended to the present end.
func (w *walk) read(ctx context.Context) error {
	present, err := topicOffsets(ctx, w.copies.Client(), w.topic)
	if err != nil {
		return err
	}
	for number, found := range present {
		p := w.partitions[number]
		if p == nil {
			p = &deadPartition{next: found.start, open: map[int64]openLetter{}}
			w.partitions[number] = p
		}
		if found.end < p.next {
			return fmt.Errorf("partition %d has lost its last records, or the topic was made anew; repeat the command", number)
		}
		p.offsets = found
	}
	return w.consume(ctx)
}

// consume reads each partition from its next offset to its end.
func (w *walk) consume(ctx context.Context) error {
	from := map[int32]kgo.Offset{}
	for number, p := range w.partitions {
		if p.next < p.end {
			from[number] = kgo.NewOffset().At(p.next)
		}
	}
	if len(from) == 0 {
		return nil
	}
	options, err := w.connection.Options()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append(options,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{w.topic: from}), kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.KeepControlRecords(), // a partition may end with them
	)...)
	if err != nil {
		return fmt.Errorf("make a client of Kafka: %w", err)
	}
	defer client.Close()
	return w.fetch(ctx, client)
}

// fetch takes records until each partition has been read to its end.
func (w *walk) fetch(ctx context.Context, client *kgo.Client) error {
	for !w.complete() {
		poll, cancel := context.WithTimeout(ctx, longestPoll)
		fetched := client.PollFetches(poll)
		silent := errors.Is(fetched.Err0(), context.DeadlineExceeded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case silent:
			if err := w.skipDeleted(ctx); err != nil {
				return err
			}
		case fetched.Err() != nil:
			return fetched.Err()
		}
		fetched.EachRecord(w.next)
	}
	return nil
}

// longestPoll is how long no record arrives before a walk asks whether the records are still there.
const longestPoll = 2 * time.Second

// skipDeleted goes on behind records that were deleted since the walk began, as by retention or another walk.
func (w *walk) skipDeleted(ctx context.Context) error {
	present, err := topicOffsets(ctx, w.copies.Client(), w.topic)
	if err != nil {
		return err
	}
	for number, p := range w.partitions {
		p.next = max(p.next, present[number].start)
	}
	return nil
}

// next takes the next record of its partition.
func (w *walk) next(record *kgo.Record) {
	if p := w.partitions[record.Partition]; p != nil && record.Offset < p.end {
		p.next = record.Offset + 1
		w.take(p, record)
	}
}

func (w *walk) complete() bool {
	for _, p := range w.partitions {
		if p.next < p.end {
			return false
		}
	}
	return true
}

// keep keeps the place of a letter, or lets go of the letter that the record settles.
func (p *deadPartition) keep(record *kgo.Record, match func(*consumer.Letter) bool) {
	if record.Attrs.IsControl() {
		return
	}
	if of, offset, is := settled(record); is {
		if p.open[offset].settlement == of {
			delete(p.open, offset)
		}
		return
	}
	p.open[record.Offset] = openLetter{
		settlement: settlement(record), matches: match(&newLetter(record).Letter), place: placeOf(record),
	}
}

// foundLetter is a letter that a walk shows.
type foundLetter struct {
	letter *letter
	walk   *walk
}

func (f *foundLetter) Content() *consumer.Letter { return &f.letter.Letter }

// Publish returns nil when all in-sync replicas have the copy.
func (f *foundLetter) Publish(ctx context.Context) error {
	if err := f.letter.check(); err != nil {
		return err
	}
	return writeAlone(ctx, f.walk.copies, f.letter.replay())
}

// Remove settles the letter.
func (f *foundLetter) Remove(ctx context.Context, how string) error {
	err := writeAlone(context.WithoutCancel(ctx), f.walk.settlements, f.letter.settling(how))
	if err == nil {
		f.walk.settled++
	}
	return err
}

// writeAlone writes a record in a batch of its own, and returns nil when all in-sync replicas have the record.
func writeAlone(ctx context.Context, to *kafkaconn.Producer, record *kgo.Record) error {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	if answer := to.WriteAlone(ctx, record); answer.Fate != kafkaconn.Stored {
		return fmt.Errorf("write to topic %s: %w", record.Topic, answer.Err)
	}
	return nil
}

// trim deletes the records before the first open letter of each partition: settled letters, and settlements, whose
// letters are before them. A failure changes no letter, and the next change tries again.
func (w *walk) trim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), postTimeout)
	defer cancel()
	if w.read(ctx) != nil { // the settlements just written, and letters that have come
		return
	}
	before := kadm.Offsets{}
	for number, p := range w.partitions {
		first := p.end
		for offset := range p.open {
			first = min(first, offset)
		}
		if first > p.start {
			before.AddOffset(w.topic, number, first, -1)
		}
	}
	_, _ = kadm.NewClient(w.copies.Client()).DeleteRecords(ctx, before) // the records that stay are settled anyway
}
