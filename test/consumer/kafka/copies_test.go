package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// writeLarge writes a message with a body that no compression makes smaller.
func writeLarge(t *testing.T, k *fakekafka.Cluster, size int) (body []byte) {
	t.Helper()
	body = make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(body)
	record := withID("large")
	record.Value = body
	produce(t, k, record)
	return body
}

// The copies of a message are larger than the message, and than the batches that clients write by default.
func TestOnlyTopicLimitsSizeOfCopies(t *testing.T) {
	t.Parallel()
	k := fakekafka.Start(t, nil, kgo.ProducerBatchMaxBytes(4<<20))
	const size = 2 << 20
	for _, topic := range []string{"orders", "payments.retry.200ms", "payments.retry.400ms", "payments.dead"} {
		k.Topic(topic, map[string]string{"max.message.bytes": "2200000"})
	}
	body := writeLarge(t, k, size)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		if !bytes.Equal(m.Body, body) {
			t.Errorf("a body of %d bytes is not the message's", len(m.Body))
		}
		if b.Note(m) < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	servers.Eventually(t, time.Minute, "the message is handled after two retries", func() bool {
		return b.Times("large") == 3
	})
	r.finish()
	if last := b.All()[2]; last.Queue != "payments.retry.400ms" {
		t.Errorf("the last delivery came from %s", last.Queue)
	}
}

// A letter that is too large for its topic loses most of its causes. One that is still too large is cut, and names its
// message, which is handled no more. A copy that its retry topic refuses becomes such a letter.
func TestTooLargeLetterIsCut(t *testing.T) {
	t.Parallel()
	const size = 20_000
	for limit, want := range map[string]struct{ causes, body int }{
		"22000": {100, size}, // of which the causes may take less than 2,000
		"10000": {0, 1024},
	} {
		for _, reject := range []bool{true, false} {
			k := cluster(t)
			config := quick(t, k)
			k.Topic("payments.dead", map[string]string{"max.message.bytes": limit})
			if !reject {
				config.Delays = []time.Duration{time.Hour}
				k.Topic("payments.retry.1h0m0s", map[string]string{"max.message.bytes": "10000"})
			}
			writeLarge(t, k, size)
			b := &consumertest.Calls{}
			r := start(t, config, func(_ context.Context, m *consumer.Message) error {
				b.Note(m)
				if reject {
					return consumer.Reject(randomError())
				}
				return randomError()
			})
			var dead []letter
			servers.Eventually(t, time.Minute, "a dead letter", func() bool {
				dead = letters(t, k, "payments.dead")
				return len(dead) > 0
			})
			r.finish()
			read, err := deadLetters(t, k).List(t.Context(), 10)
			if err != nil || b.Times("large") != 1 || len(read) != 1 || len(read[0].Body) != want.body {
				t.Errorf("limit %s: handled %d times, %d letters, %v", limit, b.Times("large"), len(read), err)
			}
			wantCauses(t, dead[0], want.causes)
			_, err = deadLetters(t, k).Replay(t.Context(), consumer.Anywhere)
			if refused := err != nil && strings.Contains(err.Error(), "the letter was cut"); refused != (want.causes == 0) {
				t.Errorf("limit %s: replayed with %v", limit, err)
			}
		}
	}
}

// randomError has a text of 3,000 bytes that cannot be packed.
func randomError() error {
	cause, random := make([]rune, 1000), rand.New(rand.NewPCG(7, 7))
	for i := range cause {
		cause[i] = rune(0x4e00 + random.IntN(0x5000)) // three bytes each
	}
	return errors.New(string(cause))
}

// wantCauses demands the length of the causes, or that the letter says where its message is.
func wantCauses(t *testing.T, dead letter, characters int) {
	t.Helper()
	if len(dead.header("msghandler-id")) == 0 {
		t.Errorf("the dead letter has no id: %v", dead.Headers)
	}
	if characters == 0 {
		if reason := dead.header(consumer.HeaderDeadReason); !strings.Contains(reason, "cut to 1024 of 20000 bytes") {
			t.Errorf("the reason does not name the cut: %s", reason)
		}
		return
	}
	for _, name := range []string{consumer.HeaderFirstCause, consumer.HeaderDeadReason} {
		if got := []rune(dead.header(name)); len(got) != characters {
			t.Errorf("%s has %d characters, want %d", name, len(got), characters)
		}
	}
}

// Headers of copies mean something in retry topics only. A dead letter that somebody writes to its topic once more is a
// new message, with all of its retries, and no header makes a message wait.
func TestRetryTopicsAloneReadCopyHeaders(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		if b.Note(m) == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	produce(t, k, withID("again",
		kgo.RecordHeader{Key: consumer.HeaderRetries, Value: []byte("3")},
		kgo.RecordHeader{Key: consumer.HeaderFirstCause, Value: []byte("an old cause")},
		kgo.RecordHeader{Key: consumer.HeaderExchange, Value: []byte("elsewhere")},
		kgo.RecordHeader{Key: kafkaconsumer.HeaderRetryAt, Value: []byte("9999999999999")},
	))
	servers.Eventually(t, time.Minute, "the message is retried", func() bool { return b.Times("again") == 2 })
	r.finish()
	if m := b.All()[0]; m.Retries != 0 || m.FirstCause != "" || m.Exchange != "orders" {
		t.Errorf("the message is %+v", m)
	}
	if m := b.All()[1]; m.Retries != 1 || m.FirstCause != "not yet" || m.Exchange != "orders" {
		t.Errorf("its retry is %+v", m)
	}
}

// A process whose clock is ahead writes a copy that is due in a year. The copy waits for the delay of its topic only.
func TestOtherProcessesClockDelaysNoCopy(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	config := quick(t, k)
	config.Delays = []time.Duration{200 * time.Millisecond, time.Hour}
	r := start(t, config, b.Handle)
	write(t, k, 0, 1)
	b.AwaitIDs(t, 1) // the retry topics exist
	record := &kgo.Record{Topic: "payments.retry.200ms", Headers: []kgo.RecordHeader{
		{Key: "msghandler-id", Value: []byte("copy")},
		{Key: consumer.HeaderRetries, Value: []byte("1")},
		{Key: kafkaconsumer.HeaderRetryAt, Value: strconv.AppendInt(nil, time.Now().AddDate(1, 0, 0).UnixMilli(), 10)},
	}}
	produce(t, k, record)
	b.AwaitIDs(t, 2)
	r.finish()
}

// A message of a producer has the header of a settlement. Its dead letter is a letter, and settles none.
func TestMessageWithSettlementHeaderBecomesLetter(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		b.Note(m)
		return consumer.Reject(errors.New("unreadable"))
	})
	settled := kgo.RecordHeader{Key: kafkaconsumer.HeaderSettled, Value: []byte("0/0/1700000000000")}
	produce(t, k, withID("strange", settled))
	b.AwaitIDs(t, 1)
	r.finish()
	if found := names(t, deadLetters(t, k)); len(found) != 1 {
		t.Errorf("the open letters are %v, want one", found)
	}
}
