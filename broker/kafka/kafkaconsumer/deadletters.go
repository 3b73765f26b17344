package kafkaconsumer

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// NewDeadLetters describes a dead-letter topic. The first method call connects. URL and TLS are as in Config. The
// methods read the topic from its start to its end, and read the letters that they look for once more: about 16 MiB of
// letters are in memory. The oldest letters are so by their time. No consumer group is used, so looking changes
// nothing, also for others who look at the same time.
//
// Kafka removes no single record. A letter that is replayed or discarded gets a settlement: a record behind the letter
// in the same partition, with the header HeaderSettled. Letters with a settlement are left out here. Other readers of
// the topic must leave out both. Settled records at the start of a partition are then deleted (DeleteRecords), so a
// topic without open letters becomes empty. Where the user has no permission to delete, the topic keeps these records
// until its retention.
//
// The user needs the permissions to describe and to read the topic. Replay and Discard also need to write to the topic,
// and Replay needs to write to the topics of the messages.
func NewDeadLetters(url string, tls *tls.Config, topic string) (*consumer.DeadLetters, error) {
	cluster, err := address.ParseKafka(url)
	if err != nil {
		return nil, fmt.Errorf("kafkaconsumer.NewDeadLetters: URL %w", err)
	}
	if err := (&kafkaconn.Message{Topic: topic}).Check(); err != nil {
		return nil, fmt.Errorf("kafkaconsumer.NewDeadLetters: the dead-letter topic: %w", err)
	}
	d := &deadLetterTopic{topic: topic, connection: kafkaconn.Config{
		Address: cluster, Name: "msghandler dead letters", TLS: tls, AnswerTimeout: answerTimeout,
	}}
	if _, err := d.connection.Options(); err != nil {
		return nil, fmt.Errorf("kafkaconsumer.NewDeadLetters: %w", err)
	}
	return consumer.NewDeadLetters(d), nil
}

// deadLetterTopic is the topic of DeadLetters.
type deadLetterTopic struct {
	connection kafkaconn.Config
	topic      string
}

// Scan deletes the settled records at the start of each partition when letters were settled.
func (d *deadLetterTopic) Scan(
	ctx context.Context, s consumer.Scan, visit func(consumer.FoundLetter) (last bool, err error),
) error {
	w, err := d.walk(ctx, s.Match)
	if err != nil {
		return err
	}
	defer w.close()
	err = w.visit(ctx, w.places(s.Limit), visit)
	if w.settled > 0 {
		w.trim(ctx)
	}
	return err
}

// Count reads the topic: a settled letter counts no more.
func (d *deadLetterTopic) Count(ctx context.Context) (int, error) {
	w, err := d.walk(ctx, func(*consumer.Letter) bool { return true })
	if err != nil {
		return 0, err
	}
	defer w.close()
	return len(w.places(math.MaxInt)), nil
}

// Depth is the number of records in the topic. Settled letters and their settlements count until the letters before
// them are settled.
func (d *deadLetterTopic) Depth(ctx context.Context) (int, error) {
	w := &walk{connection: d.connection, topic: d.topic}
	defer w.close()
	if err := w.connect(ctx); err != nil {
		return 0, fmt.Errorf("look at the dead-letter topic %s: %w", d.topic, err)
	}
	found, err := topicOffsets(ctx, w.copies.Client(), d.topic)
	if err != nil {
		return 0, fmt.Errorf("look at the dead-letter topic %s: %w", d.topic, err)
	}
	return records(found), nil
}
