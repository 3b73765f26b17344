package natsconsumer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// letter is a dead letter and its record in the dead-letter stream.
type letter struct {
	consumer.Letter
	record *jetstream.RawStreamMsg
}

func newLetter(stream string, record *jetstream.RawStreamMsg) *letter {
	m, header := readMessage(record.Header, record.Data, record.Time), record.Header.Get
	m.Exchange, m.RoutingKey = header(consumer.HeaderExchange), header(consumer.HeaderRoutingKey)
	if m.RoutingKey == "" {
		m.RoutingKey = strings.TrimPrefix(record.Subject, stream+".")
	}
	m.FirstCause = header(consumer.HeaderFirstCause)
	m.Retries = deadletter.Count(header(consumer.HeaderRetries))
	return &letter{record: record, Letter: consumer.Letter{
		Message: *m, Queue: header(consumer.HeaderQueue), Reason: header(consumer.HeaderDeadReason),
		FirstFailedAt: header(consumer.HeaderFirstFailedAt), DeadAt: deadletter.Time(record.Time),
	}.Bounded()}
}

// check refuses a letter that cannot be replayed, or must not be replayed. A user who may write to the dead-letter
// stream must not choose a command to the server, which the replay of an operator would then give.
func (l *letter) check() error {
	if l.Exchange == "" {
		return errors.New("the letter does not name its stream in the header " + consumer.HeaderExchange +
			"; publish its body by hand, or discard it")
	}
	if l.record.Header.Get(consumer.HeaderCut) != "" {
		return errCut
	}
	to := natsconn.Message{Stream: l.Exchange, Subject: l.RoutingKey}
	return to.Check()
}

// replay is the next publishing of a letter: marked as a copy, without the headers of its failures.
func (l *letter) replay() *nats.Msg {
	m := nats.NewMsg(l.RoutingKey)
	m.Data = l.record.Data
	for key, values := range l.record.Header {
		if !brokers(key) && !deadletter.IsFailureHeader(key) {
			m.Header[key] = values
		}
	}
	m.Header.Set(publish.HeaderAttempt, strconv.FormatInt(deadletter.Grown(l.Attempt), 10))
	m.Header.Set(jetstream.MsgIDHeader, l.replayID())
	return m
}

// replayID is the Nats-Msg-Id of a replay. The id of the message would be a duplicate for its stream. A letter has one
// replay id, and the time tells letters apart that have one sequence number, as in a stream that was made anew.
func (l *letter) replayID() string {
	return fmt.Sprintf("%s:replay:%d:%d", l.record.Header.Get(jetstream.MsgIDHeader), l.record.Sequence,
		l.record.Time.UnixNano())
}
