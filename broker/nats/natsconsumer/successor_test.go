package natsconsumer

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
)

// questioned is a durable consumer that counts the questions about it.
type questioned struct {
	jetstream.Consumer
	created time.Time
	times   int
}

func (q *questioned) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	q.times++
	return &jetstream.ConsumerInfo{Created: q.created}, nil
}

// A server that was killed gives thousands of numbers twice. The process asks for the age of the durable once for each
// step back, and not for each message.
func TestStepBackAsksForAgeOnce(t *testing.T) {
	t.Parallel()
	made := time.Unix(1_700_000_000, 0)
	s := &session{
		run: &run{work: t.Context()}, refusals: &natsconn.Refusals{}, connected: t.Context(), created: made,
	}
	durable := &questioned{created: made}
	deliver := func(numbers ...uint64) (ofSuccessor bool) {
		for _, n := range numbers {
			meta := jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Consumer: n}}
			ofSuccessor = s.isOfSuccessor(durable, &meta)
		}
		return ofSuccessor
	}
	if deliver(4000, 4001, 1000, 1001, 1002, 1003) || durable.times != 1 {
		t.Errorf("after one step back: %d questions", durable.times)
	}
	durable.created = made.Add(time.Second)
	if !deliver(1) {
		t.Error("a delivery of another durable is taken for one of the first")
	}
}
