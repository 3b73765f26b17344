package kafkaconn

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Message is a message of a producer, as a record of Kafka carries it.
type Message struct {
	// ID and Producer identify the message.
	ID, Producer string
	// Topic and Key say where the message goes. Messages with an empty key have no order.
	Topic, Key string
	// ContentType is the body's media type.
	ContentType string
	// Trace is a trace context that becomes a header, unless Headers has one.
	Trace string
	// Headers are the caller's. Those with the names of the id, the producer, the attempt and the time are not sent.
	Headers map[string]string
	Body    []byte
	// Time becomes a header, unless zero: it is when the message became due. The record itself has the time of its
	// publishing, since retention by the due time could delete a late message at its birth.
	Time time.Time
	// Attempt is the number of the copy.
	Attempt int
}

// longestTopic is how many characters Kafka allows for the name of a topic.
const longestTopic = 249

// Check says why no cluster can have the topic of the message.
func (m *Message) Check() error {
	switch {
	case m.Topic == "":
		return errors.New("the message names no topic; name it as the exchange")
	case len(m.Topic) > longestTopic || m.Topic == "." || m.Topic == "..":
		return fmt.Errorf("%.40q is no name of a topic in Kafka: . and .. are reserved, and a name has 1 to %d characters",
			m.Topic, longestTopic)
	}
	for _, c := range m.Topic {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && !strings.ContainsRune("._-", c) {
			return fmt.Errorf("%.40q is no name of a topic in Kafka; write letters, digits, dots, dashes and underscores",
				m.Topic)
		}
	}
	return nil
}

// Record is the message as a record. The record shares nothing with the message.
func (m *Message) Record() *kgo.Record {
	headers := make([]kgo.RecordHeader, 0, len(m.Headers)+6)
	add := func(key, value string) {
		headers = append(headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
	}
	addOwn := func(key, value string) {
		if _, own := m.Headers[key]; value != "" && !own {
			add(key, value)
		}
	}
	add(publish.HeaderID, m.ID)
	add(publish.HeaderProducer, m.Producer)
	add(publish.HeaderAttempt, strconv.Itoa(m.Attempt))
	if !m.Time.IsZero() {
		add(publish.HeaderTimestamp, m.Time.UTC().Format(time.RFC3339Nano))
	}
	addOwn(publish.HeaderContentType, m.ContentType)
	addOwn(publish.HeaderTrace, m.Trace)
	for key, value := range m.Headers {
		if !reserved(key) {
			add(key, value)
		}
	}
	r := &kgo.Record{Topic: m.Topic, Headers: headers, Value: bytes.Clone(m.Body)}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	return r
}

// reserved reports whether a header is the publisher's own, so that no header of the caller may take its place.
func reserved(key string) bool {
	return key == publish.HeaderID || key == publish.HeaderProducer || key == publish.HeaderAttempt ||
		key == publish.HeaderTimestamp
}

// Read is the message of a record, also of a record that another program has written. Then the ID may be empty, the
// Attempt is 1, and the Time is the record's. Of several headers with one name, the last counts.
func Read(r *kgo.Record) Message {
	m := Message{
		Topic: r.Topic, Key: string(r.Key), Body: r.Value, Time: deadletter.Time(r.Timestamp), Attempt: 1,
		Headers: make(map[string]string, len(r.Headers)),
	}
	for _, header := range r.Headers {
		value := string(header.Value)
		switch header.Key {
		case publish.HeaderID:
			m.ID = value
		case publish.HeaderProducer:
			m.Producer = value
		case publish.HeaderAttempt:
			m.Attempt = max(deadletter.Count(value), 1)
		case publish.HeaderTimestamp:
			if due, ok := deadletter.ParseTime(value); ok {
				m.Time = due
			}
		case publish.HeaderContentType:
			m.ContentType = value
		default:
			m.Headers[header.Key] = value
		}
	}
	return m
}
