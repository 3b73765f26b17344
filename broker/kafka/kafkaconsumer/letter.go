package kafkaconsumer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// HeaderSettled marks a record of a dead-letter topic that settles an earlier letter of its partition. The value is
// PARTITION/OFFSET/TIME of the letter, with the time in milliseconds since 1970.
const HeaderSettled = "msghandler-settled"

// letter is a dead letter and its record in the dead-letter topic.
type letter struct {
	consumer.Letter
	record *kgo.Record
}

func newLetter(record *kgo.Record) *letter {
	read := kafkaconn.Read(record)
	header := func(name string) string { return read.Headers[name] }
	l := &letter{record: record, Letter: consumer.Letter{
		Message: consumer.Message{
			ID: read.ID, Producer: read.Producer, Attempt: read.Attempt, Exchange: header(consumer.HeaderExchange),
			RoutingKey: read.Key, ContentType: read.ContentType, Headers: map[string]string{}, Body: read.Body,
			Timestamp: read.Time, FirstCause: header(consumer.HeaderFirstCause),
			Retries: deadletter.Count(header(consumer.HeaderRetries)),
		},
		Queue: header(consumer.HeaderQueue), Reason: header(consumer.HeaderDeadReason),
		FirstFailedAt: header(consumer.HeaderFirstFailedAt), DeadAt: deadletter.Time(record.Timestamp),
	}}
	for name, value := range read.Headers {
		if !strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "msghandler-") {
			l.Headers[name] = value
		}
	}
	l.Letter = l.Bounded()
	return l
}

// check refuses a letter that cannot be replayed.
func (l *letter) check() error {
	if l.Exchange == "" {
		return errors.New("the letter does not name its topic in the header " + consumer.HeaderExchange +
			"; write its body by hand, or discard it")
	}
	for _, header := range l.record.Headers {
		if header.Key == consumer.HeaderCut {
			return errors.New("the letter was cut, as its topic takes no larger one; " +
				"write the message that its reason names by hand, and discard the letter")
		}
	}
	to := kafkaconn.Message{Topic: l.Exchange}
	return to.Check()
}

// replay is the next record of a letter: marked as a copy, without the headers of its failures. The copy has a time of
// its own: by the first record's time, retention could delete a copy that was just written.
func (l *letter) replay() *kgo.Record {
	again := &kgo.Record{Topic: l.Exchange, Key: l.record.Key, Value: l.record.Value}
	for _, header := range l.record.Headers {
		if !deadletter.IsFailureHeader(header.Key) && header.Key != HeaderRetryAt && header.Key != publish.HeaderAttempt {
			again.Headers = append(again.Headers, header)
		}
	}
	again.Headers = append(again.Headers, kgo.RecordHeader{
		Key: publish.HeaderAttempt, Value: []byte(strconv.FormatInt(deadletter.Grown(l.Attempt), 10)),
	})
	return again
}

// settlement names the letter that a record settles. The time tells letters apart where a mirror of the topic has other
// offsets.
func settlement(letter *kgo.Record) string {
	return fmt.Sprintf("%d/%d/%d", letter.Partition, letter.Offset, letter.Timestamp.UnixMilli())
}

// settling is the record that settles a letter. It must be in the letter's partition: where Kafka loses the end of a
// partition, and new letters get the lost offsets, the settlement behind the letter is lost, too. Its key is its own,
// and the value is not empty: where the topic is compacted, the record must replace no letter.
func (l *letter) settling(how string) *kgo.Record {
	of := settlement(l.record)
	return &kgo.Record{
		Topic: l.record.Topic, Partition: l.record.Partition, Key: []byte(HeaderSettled + ":" + of),
		Value:   []byte(how + " " + l.Name()),
		Headers: []kgo.RecordHeader{{Key: HeaderSettled, Value: []byte(of)}},
	}
}

// settled returns the settlement that a record is, with the offset of its letter; ok is false for a letter.
func settled(record *kgo.Record) (of string, offset int64, ok bool) {
	for _, header := range record.Headers {
		if header.Key != HeaderSettled {
			continue
		}
		of, offset = string(header.Value), -1
		if parts := strings.Split(of, "/"); len(parts) == 3 {
			if n, err := strconv.ParseInt(parts[1], 10, 64); err == nil {
				offset = n
			}
		}
		return of, offset, true
	}
	return "", 0, false
}
