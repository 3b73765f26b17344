package kafkaconsumer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
)

// roundBytes is about how many bytes a round has at most, which is in memory, and letterBytes what a letter takes
// beside its texts and its body. Each round has a client of its own, so small letters share one.
const roundBytes, letterBytes = 16 << 20, 1 << 10

// position names a record of a topic.
type position struct {
	partition int32
	offset    int64
}

// place is where a letter stands, since when, and how large it is.
type place struct {
	position
	at    time.Time
	bytes int
}

func placeOf(record *kgo.Record) place {
	bytes := letterBytes + len(record.Key) + len(record.Value)
	for _, header := range record.Headers {
		bytes += len(header.Key) + len(header.Value)
	}
	return place{position{record.Partition, record.Offset}, record.Timestamp, bytes}
}

// places are those of the open letters that match, the oldest first, and at most so many.
func (w *walk) places(limit int) (all []place) {
	for _, p := range w.partitions {
		for _, open := range p.open {
			if open.matches {
				all = append(all, open.place)
			}
		}
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.partition, b.partition), cmp.Compare(a.offset, b.offset))
	})
	return all[:min(len(all), max(limit, 0))]
}

// visit reads the letters at places in rounds that fit in memory, and visits each, until a visit is the last one or
// fails. A letter that has gone since is left out.
func (w *walk) visit(
	ctx context.Context, places []place, visit func(consumer.FoundLetter) (last bool, err error),
) error {
	for len(places) > 0 {
		n := roundOf(places)
		letters, err := w.load(ctx, places[:n])
		if err != nil {
			return fmt.Errorf("read the dead-letter topic %s: %w", w.topic, err)
		}
		for _, at := range places[:n] {
			l := letters[at.position]
			if l == nil {
				continue
			}
			if last, err := visit(&foundLetter{l, w}); last || err != nil {
				return err
			}
		}
		places = places[n:]
	}
	return nil
}

// roundOf is how many letters the next round has: one at least.
func roundOf(places []place) int {
	bytes := 0
	for n, at := range places {
		if bytes += at.bytes; n > 0 && bytes > roundBytes {
			return n
		}
	}
	return len(places)
}

// load reads the letters at places. The time tells a letter from another one at its place, as in a topic that was made
// again: the other one was not selected.
func (w *walk) load(ctx context.Context, places []place) (map[position]*letter, error) {
	again := &walk{
		connection: w.connection, topic: w.topic, copies: w.copies, partitions: map[int32]*deadPartition{},
	}
	letters, written := make(map[position]*letter, len(places)), make(map[position]time.Time, len(places))
	for _, at := range places {
		written[at.position] = at.at
		p := again.partitions[at.partition]
		if p == nil {
			p = &deadPartition{next: at.offset}
			again.partitions[at.partition] = p
		}
		p.next, p.end = min(p.next, at.offset), max(p.end, at.offset+1)
	}
	again.take = func(_ *deadPartition, record *kgo.Record) {
		at := position{record.Partition, record.Offset}
		if of, wanted := written[at]; wanted && of.Equal(record.Timestamp) {
			letters[at] = newLetter(record)
		}
	}
	return letters, again.consume(ctx)
}
