package natsconsumer

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
)

// noted is a durable consumer with its metadata.
type noted struct {
	jetstream.Consumer
	metadata map[string]string
}

func (n *noted) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	return &jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{Metadata: maps.Clone(n.metadata)}}, nil
}

// notes counts the notes of messages.
func (n *noted) notes() (count int) {
	for name := range n.metadata {
		if strings.HasPrefix(name, metaBegun) {
			count++
		}
	}
	return count
}

// updater is a JetStream that updates the durable consumer.
type updater struct {
	jetstream.JetStream
	durable *noted
	// after is called after an update, and returns the answer.
	after func() error
}

func (u *updater) UpdateConsumer(
	_ context.Context, _ string, config jetstream.ConsumerConfig,
) (jetstream.Consumer, error) {
	u.durable.metadata = maps.Clone(config.Metadata)
	return u.durable, u.after()
}

// handling is a session with a message that was delivered 30 times.
func handling() (*session, *updater, *task) {
	durable := &noted{}
	js := &updater{durable: durable, after: func() error { return nil }}
	s := &session{
		run: &run{Config: Config{MaxDeliveries: 5}}, js: js, durable: durable, refusals: &natsconn.Refusals{},
	}
	return s, js, &task{meta: &jetstream.MsgMetadata{NumDelivered: 30, Sequence: jetstream.SequencePair{Stream: 7}}}
}

// JetStream does what it is told, and its answers are lost. The handler was never called, so nothing may be rejected.
func TestUnansweredNoteCountsOnce(t *testing.T) {
	t.Parallel()
	s, js, message := handling()
	js.after = func() error { return context.DeadlineExceeded }
	for range 10 {
		if err := s.begin(message); errors.As(err, new(*consumer.RejectError)) {
			t.Fatal(err)
		}
	}
	js.after = func() error { return nil }
	if err := s.begin(message); err != nil || js.durable.notes() != 1 {
		t.Errorf("%v; the notes are %v", err, js.durable.metadata)
	}
}

// Another process has read the notes before this one takes its own back, and writes them afterwards.
func TestOverwrittenReturnIsRepeated(t *testing.T) {
	t.Parallel()
	s, js, message := handling()
	if err := s.begin(message); err != nil || js.durable.notes() != 1 {
		t.Fatalf("%v; the notes are %v", err, js.durable.metadata)
	}
	overwritten, before := 0, maps.Clone(js.durable.metadata)
	js.after = func() error {
		if overwritten++; overwritten <= 2 {
			js.durable.metadata = maps.Clone(before)
		}
		return nil
	}
	s.takeBack(message)
	if n := js.durable.notes(); n != 0 {
		t.Errorf("the process has returned the message, and %d notes stay", n)
	}
}
