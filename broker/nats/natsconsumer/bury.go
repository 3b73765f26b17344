package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// letter is the copy of a message for the dead-letter stream. A repeated copy is the same letter for JetStream.
func (s *session) letter(t *task, cause error) *nats.Msg {
	letter := nats.NewMsg(s.run.DeadLetterStream + "." + t.Subject())
	letter.Data = t.Data()
	for key, values := range t.Headers() {
		if !brokers(key) && key != consumer.HeaderCut {
			letter.Header[key] = values
		}
	}
	letter.Header.Set(consumer.HeaderDeadReason, adapter.Cause(cause.Error(), adapter.MaxCause))
	letter.Header.Set(consumer.HeaderRetries, strconv.FormatUint(t.meta.NumDelivered-1, 10))
	letter.Header.Set(consumer.HeaderQueue, s.run.Name)
	letter.Header.Set(consumer.HeaderExchange, t.meta.Stream)
	letter.Header.Set(consumer.HeaderRoutingKey, t.Subject())
	letter.Header.Set(jetstream.MsgIDHeader, s.letterID(t.meta))
	return letter
}

// letterID is the Nats-Msg-Id of a dead letter. The time tells messages apart that have one sequence number, as in a
// stream that was made anew.
func (s *session) letterID(of *jetstream.MsgMetadata) string {
	return fmt.Sprintf("%s/%s/%d/%d", of.Stream, s.run.Name, of.Sequence.Stream, of.Timestamp.UnixNano())
}

// post publishes a letter. A letter has more headers than its message and may be too large for the stream: then post
// cuts the reason, and if need be the letter. Otherwise its message would be handled for ever.
func (s *session) post(t *task, letter *nats.Msg) error {
	err := s.postOnce(letter)
	if natsconn.TooLarge(err) {
		reason := adapter.Cause(letter.Header.Get(consumer.HeaderDeadReason), adapter.ShortCause)
		letter.Header.Set(consumer.HeaderDeadReason, reason)
		err = s.postOnce(letter)
	}
	if natsconn.TooLarge(err) {
		cut(letter, t.meta)
		err = s.postOnce(letter)
	}
	return err
}

func (s *session) postOnce(letter *nats.Msg) error {
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	return s.refusals.Ask(ctx, letter.Subject, func(ctx context.Context) error {
		_, err := s.js.PublishMsg(ctx, letter, jetstream.WithExpectStream(s.run.DeadLetterStream))
		return err
	})
}

// cut leaves the beginning of the body and the headers that name the message, and says where the message is.
func cut(letter *nats.Msg, of *jetstream.MsgMetadata) {
	whole := len(letter.Data)
	letter.Data = letter.Data[:min(whole, adapter.KeptBody)]
	for key := range letter.Header {
		if !brokers(key) && !strings.HasPrefix(key, "msghandler-") && key != publish.HeaderContentType {
			delete(letter.Header, key)
		}
	}
	letter.Header.Set(consumer.HeaderCut, strconv.Itoa(whole))
	letter.Header.Set(consumer.HeaderDeadReason, fmt.Sprintf("%s (cut to %d of %d bytes, without headers of its own: "+
		"the stream takes no larger letter; the message is number %d of the stream %s)",
		letter.Header.Get(consumer.HeaderDeadReason), len(letter.Data), whole, of.Sequence.Stream, of.Stream))
}

// errCut: a letter does not hold its whole message.
var errCut = errors.New("the letter was cut, as its stream takes no larger one; " +
	"publish the message that its reason names by hand, and discard the letter")
