package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// HeaderRetryAt is when a message in a retry topic is due, in milliseconds since 1970. The other headers of copies are
// those of package consumer.
const HeaderRetryAt = "msghandler-retry-at"

const (
	// postTimeout bounds writing one copy.
	postTimeout = 10 * time.Second
)

// newMessage is a record as a message. The topic of a copy in a retry topic is that of the first record.
func newMessage(record *kgo.Record, isCopy bool) *consumer.Message {
	read := kafkaconn.Read(record)
	m := &consumer.Message{
		ID: read.ID, Producer: read.Producer, Attempt: read.Attempt, Queue: record.Topic,
		Exchange: read.Topic, RoutingKey: read.Key, ContentType: read.ContentType, Body: read.Body,
		Timestamp: read.Time, Headers: read.Headers,
	}
	if n := deadletter.Count(read.Headers[consumer.HeaderRetries]); isCopy && n > 0 {
		m.Retries, m.FirstCause = n, read.Headers[consumer.HeaderFirstCause]
		m.Exchange = read.Headers[consumer.HeaderExchange]
	}
	for name := range m.Headers {
		if strings.HasPrefix(name, "x-") || strings.HasPrefix(name, "msghandler-") {
			delete(m.Headers, name)
		}
	}
	return m
}

// dueAt is when a record may be handled.
func dueAt(record *kgo.Record) time.Time {
	for _, header := range record.Headers {
		if header.Key == HeaderRetryAt {
			if ms, err := strconv.ParseInt(string(header.Value), 10, 64); err == nil {
				return time.UnixMilli(ms)
			}
		}
	}
	return time.Time{}
}

// settle gives a message that was handled with err its result. settled is false when the message stays here and is
// handled again. A message is never done before its copy is safe.
func (r *run) settle(
	record *kgo.Record, m *consumer.Message, err error, kept int,
) (result consumer.Result, settled bool) {
	switch adapter.Decide(r.work, err) {
	case adapter.Acknowledge:
		return consumer.Effect, true
	case adapter.Drop:
		r.log().Dropped(m)
		return consumer.Duplicate, true
	case adapter.DeadLetter:
		return r.deadLetter(record, m, err, kept)
	case adapter.GiveBack, adapter.Keep:
		return r.keep(m, err, kept)
	case adapter.Retry:
	}
	switch {
	case len(r.Delays) == 0:
		return r.keep(m, err, kept)
	case m.Retries >= r.RetryLimit:
		return r.deadLetter(record, m, err, kept)
	}
	return r.park(record, m, err, kept)
}

// keep has a message handled again after a pause.
func (r *run) keep(m *consumer.Message, err error, kept int) (consumer.Result, bool) {
	r.log().Again(m, err, r.retry.Step(kept))
	return consumer.Retried, false
}

// park puts a message into the retry topic of its next delay.
func (r *run) park(record *kgo.Record, m *consumer.Message, err error, kept int) (consumer.Result, bool) {
	topic, delay := r.retryTopic(m.Retries)
	failed := r.post(topic, record, m, err, map[string]string{
		consumer.HeaderRetries: strconv.FormatInt(deadletter.Grown(m.Retries), 10),
		HeaderRetryAt:          retryAt(time.Now().Add(delay)),
	})
	switch {
	case tooLarge(failed): // again would be for ever
		return r.deadLetter(record, m, errors.Join(err, failed), kept)
	case failed != nil:
		return r.keep(m, errors.Join(err, failed), kept)
	}
	r.log().Again(m, err, delay)
	return consumer.Retried, true
}

// retryAt returns the text of HeaderRetryAt, rounded up to a millisecond so that no delay becomes shorter.
func retryAt(due time.Time) string {
	return strconv.FormatInt(due.Add(time.Millisecond-time.Nanosecond).UnixMilli(), 10)
}

// deadLetter puts a message into the dead-letter topic.
func (r *run) deadLetter(record *kgo.Record, m *consumer.Message, err error, kept int) (consumer.Result, bool) {
	failed := r.post(r.DeadTopic, record, m, err, map[string]string{
		consumer.HeaderRetries:    strconv.Itoa(m.Retries),
		consumer.HeaderDeadReason: adapter.Cause(err.Error(), adapter.MaxCause),
	})
	if failed != nil {
		return r.keep(m, errors.Join(err, failed), kept)
	}
	r.log().Dead(m, err)
	return consumer.Dead, true
}

// post writes a copy of a record to a topic, and returns nil when all in-sync replicas have the copy. The copy has
// more headers than the record, so the topic may refuse its size: then post shortens the texts of the failures.
func (r *run) post(topic string, record *kgo.Record, m *consumer.Message, err error, noted map[string]string) error {
	noted[consumer.HeaderFirstCause] = m.FirstCause
	if m.FirstCause == "" {
		noted[consumer.HeaderFirstCause] = adapter.Cause(err.Error(), adapter.MaxCause)
		noted[consumer.HeaderFirstFailedAt] = time.Now().UTC().Format(time.RFC3339)
	}
	noted[consumer.HeaderQueue], noted[consumer.HeaderExchange] = m.Exchange, m.Exchange
	noted[consumer.HeaderRoutingKey] = m.RoutingKey
	noted[publish.HeaderTimestamp] = m.Timestamp.UTC().Format(time.RFC3339Nano)
	decided, over := adapter.Decided(r.work)
	defer over()
	ctx, cancel := context.WithTimeout(decided, postTimeout)
	defer cancel()
	answer := r.write(ctx, copyOf(topic, record, noted))
	if tooLarge(answer.Err) { // perhaps together with the other copies of its batch
		answer = r.producer.WriteAlone(ctx, copyOf(topic, record, noted))
	}
	if tooLarge(answer.Err) {
		for _, cause := range []string{consumer.HeaderFirstCause, consumer.HeaderDeadReason} {
			if text, is := noted[cause]; is {
				noted[cause] = adapter.Cause(text, adapter.ShortCause)
			}
		}
		answer = r.producer.WriteAlone(ctx, copyOf(topic, record, noted))
	}
	if tooLarge(answer.Err) && topic == r.DeadTopic {
		answer = r.producer.WriteAlone(ctx, cut(copyOf(topic, record, noted), record))
	}
	if tooLarge(answer.Err) {
		r.Logger.LogAttrs(r.work, slog.LevelError, "the topic refuses the size of a copy; the message becomes a dead "+
			"letter, or waits with its partition where the dead-letter topic refuses it too; "+
			"raise max.message.bytes of the topic",
			append(name(m), slog.String("copy_to", topic), slog.Int("body_bytes", len(record.Value)))...)
	}
	if r.Create && errors.Is(answer.Err, kerr.UnknownTopicOrPartition) { // deleted since the start
		answer.Err = errors.Join(answer.Err, r.createTopics(ctx))
	}
	if answer.Fate != kafkaconn.Stored {
		return fmt.Errorf("write to topic %s: %w", topic, answer.Err)
	}
	return nil
}

// write writes a record, and waits for the answer.
func (r *run) write(ctx context.Context, record *kgo.Record) kafkaconn.Answer {
	answers := make(chan kafkaconn.Answer, 1)
	r.producer.Write(ctx, record, func(a kafkaconn.Answer) { answers <- a })
	select {
	case answer := <-answers:
		return answer
	case <-ctx.Done():
		return kafkaconn.Answer{Fate: kafkaconn.Unknown, Err: fmt.Errorf("no answer of Kafka: %w", ctx.Err())}
	}
}

func tooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// cut leaves of a letter that its topic does not take the beginning of the body and the headers that name the message,
// and says where the message is. Otherwise the message would be handled for ever, and its partition would wait.
func cut(letter, of *kgo.Record) *kgo.Record {
	letter.Value = of.Value[:min(len(of.Value), adapter.KeptBody)]
	letter.Headers = slices.DeleteFunc(letter.Headers, func(h kgo.RecordHeader) bool {
		return !strings.HasPrefix(h.Key, "msghandler-") && h.Key != publish.HeaderContentType
	})
	where := fmt.Sprintf(" (cut to %d of %d bytes, without headers of its own: the topic takes no larger letter; "+
		"the message is at offset %d of partition %d of %s)",
		len(letter.Value), len(of.Value), of.Offset, of.Partition, of.Topic)
	for i := range letter.Headers {
		if letter.Headers[i].Key == consumer.HeaderDeadReason {
			letter.Headers[i].Value = append(letter.Headers[i].Value, where...)
		}
	}
	letter.Headers = append(letter.Headers, kgo.RecordHeader{
		Key: consumer.HeaderCut, Value: []byte(strconv.Itoa(len(of.Value))),
	})
	return letter
}

// copyOf returns a copy of a record for a topic, with the noted headers. The copy has a time of its own: by the first
// record's time, retention could delete a copy that was just written. The header of a settlement is left out: with the
// header, a dead letter would be read as a settlement.
func copyOf(topic string, record *kgo.Record, noted map[string]string) *kgo.Record {
	again := &kgo.Record{Topic: topic, Key: record.Key, Value: record.Value}
	for _, header := range record.Headers {
		_, replaced := noted[header.Key]
		if !replaced && header.Key != HeaderRetryAt && header.Key != HeaderSettled && header.Key != consumer.HeaderCut {
			again.Headers = append(again.Headers, header)
		}
	}
	for key, value := range noted {
		again.Headers = append(again.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	return again
}

// name returns the log attributes of a message.
func name(m *consumer.Message) []slog.Attr { return adapter.Name(m, slog.String("topic", m.Queue)) }

func (r *run) log() adapter.Log { return adapter.Log{Context: r.work, Logger: r.Logger, Name: name} }
