package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/kafka"
	"github.com/msghandler/msghandler/test/consumer/logs"
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
func TestOnlyTheTopicLimitsTheSizeOfCopies(t *testing.T) {
	t.Parallel()
	k := fakekafka.Start(t, nil, kgo.ProducerBatchMaxBytes(4<<20))
	const size = 2 << 20
	for _, topic := range []string{"orders", "payments.retry.200ms", "payments.retry.400ms", "payments.dead"} {
		k.Topic(topic, map[string]string{"max.message.bytes": "2200000"})
	}
	body := writeLarge(t, k, size)
	b := newBook()
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		if !bytes.Equal(m.Body, body) {
			t.Errorf("a body of %d bytes is not the message's", len(m.Body))
		}
		if b.note(m) < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	servers.Eventually(t, time.Minute, "the message is handled after two retries", func() bool {
		return b.times("large") == 3
	})
	r.finish()
	if last := b.all[2]; last.Queue != "payments.retry.400ms" {
		t.Errorf("the last delivery came from %s", last.Queue)
	}
}

// A copy that is too large for its topic loses most of its causes. While the copy is still too large, the message
// stays, and the log says which limit to raise.
func TestTooLargeCopyIsShortened(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	config, log := quick(t, k), &logs.Lines{}
	config.Logger = slog.New(slog.NewTextHandler(log, nil))
	k.Topic("payments.dead", map[string]string{"max.message.bytes": "10000"})
	const size = 20_000
	writeLarge(t, k, size)
	cause, random := make([]rune, 1000), rand.New(rand.NewPCG(7, 7))
	for i := range cause {
		cause[i] = rune(0x4e00 + random.IntN(0x5000)) // three bytes each
	}
	b := newBook()
	r := start(t, config, func(_ context.Context, m *consumer.Message) error {
		b.note(m)
		return consumer.Reject(errors.New(string(cause)))
	})
	servers.Eventually(t, time.Minute, "the message stays", func() bool { return b.times("large") > 2 })
	if found := letters(t, k, "payments.dead"); len(found) > 0 {
		t.Errorf("the topic with the small limit has %d letters", len(found))
	}
	if !strings.Contains(log.String(), "level=ERROR") ||
		!strings.Contains(log.String(), "raise max.message.bytes of the topic") ||
		!strings.Contains(log.String(), "copy_to=payments.dead") {
		t.Errorf("no line names the limit: %s", log)
	}
	k.Configure("payments.dead", "max.message.bytes", "22000") // of which the causes may take less than 2,000
	var dead []letter
	servers.Eventually(t, time.Minute, "a dead letter", func() bool {
		dead = letters(t, k, "payments.dead")
		return len(dead) == 1
	})
	r.finish()
	for _, name := range []string{consumer.HeaderFirstCause, consumer.HeaderDeadReason} {
		if got := []rune(dead[0].header(name)); len(got) != 100 {
			t.Errorf("%s has %d characters, want 100", name, len(got))
		}
	}
	if len(dead[0].header("msghandler-id")) == 0 {
		t.Errorf("the dead letter has no id: %v", dead[0].Headers)
	}
}

// Headers of copies mean something in retry topics only. A dead letter that somebody writes to its topic once more is a
// new message, with all of its retries, and no header makes a message wait.
func TestHeadersOfCopiesAreReadInRetryTopicsOnly(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := newBook()
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		if b.note(m) == 1 {
			return errors.New("not yet")
		}
		return nil
	})
	produce(t, k, withID("again",
		kgo.RecordHeader{Key: consumer.HeaderRetries, Value: []byte("3")},
		kgo.RecordHeader{Key: consumer.HeaderFirstCause, Value: []byte("an old cause")},
		kgo.RecordHeader{Key: consumer.HeaderExchange, Value: []byte("elsewhere")},
		kgo.RecordHeader{Key: kafka.HeaderRetryAt, Value: []byte("9999999999999")},
	))
	servers.Eventually(t, time.Minute, "the message is retried", func() bool { return b.times("again") == 2 })
	r.finish()
	if m := b.all[0]; m.Retries != 0 || m.FirstCause != "" || m.Exchange != "orders" {
		t.Errorf("the message is %+v", m)
	}
	if m := b.all[1]; m.Retries != 1 || m.FirstCause != "not yet" || m.Exchange != "orders" {
		t.Errorf("its retry is %+v", m)
	}
}

// A process whose clock is ahead writes a copy that is due in a year. The copy waits for the delay of its topic only.
func TestClockOfAnotherProcessHoldsUpNoCopy(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := newBook()
	config := quick(t, k)
	config.Delays = []time.Duration{200 * time.Millisecond, time.Hour}
	r := start(t, config, b.handle)
	write(t, k, 0, 1)
	b.await(t, 1) // the retry topics exist
	record := &kgo.Record{Topic: "payments.retry.200ms", Headers: []kgo.RecordHeader{
		{Key: "msghandler-id", Value: []byte("copy")},
		{Key: consumer.HeaderRetries, Value: []byte("1")},
		{Key: kafka.HeaderRetryAt, Value: strconv.AppendInt(nil, time.Now().AddDate(1, 0, 0).UnixMilli(), 10)},
	}}
	produce(t, k, record)
	b.await(t, 2)
	r.finish()
}

// A message of a producer has the header of a settlement. Its dead letter is a letter, and settles none.
func TestMessageWithHeaderOfSettlementBecomesALetter(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := newBook()
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		b.note(m)
		return consumer.Reject(errors.New("unreadable"))
	})
	settled := kgo.RecordHeader{Key: kafka.HeaderSettled, Value: []byte("0/0/1700000000000")}
	produce(t, k, withID("strange", settled))
	b.await(t, 1)
	r.finish()
	if found := names(t, deadLetters(t, k)); len(found) != 1 {
		t.Errorf("the open letters are %v, want one", found)
	}
}
