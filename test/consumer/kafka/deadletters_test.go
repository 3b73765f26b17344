package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

func deadLetters(t *testing.T, k *fakekafka.Cluster) *consumer.DeadLetters {
	t.Helper()
	d, err := kafkaconsumer.NewDeadLetters(k.URL("", ""), nil, "payments.dead")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// graveyard is a cluster with the topics orders and payments.dead.
func graveyard(t *testing.T) *fakekafka.Cluster {
	t.Helper()
	k := cluster(t)
	k.Topic("payments.dead", nil)
	return k
}

// dead is a letter as a consumer writes it.
func dead(id string, more ...kgo.RecordHeader) *kgo.Record {
	record := &kgo.Record{Topic: "payments.dead", Key: []byte("key of " + id), Value: []byte("body of " + id)}
	for _, pair := range [][2]string{
		{"msghandler-id", id},
		{"msghandler-producer", "shop"},
		{"msghandler-attempt", "1"},
		{"tenant", "eu"},
		{consumer.HeaderRetries, "3"},
		{consumer.HeaderFirstCause, "no database"},
		{consumer.HeaderDeadReason, "no JSON"},
		{consumer.HeaderQueue, "orders"},
		{consumer.HeaderRoutingKey, "key of " + id},
	} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: pair[0], Value: []byte(pair[1])})
	}
	if len(more) == 0 {
		more = []kgo.RecordHeader{{Key: consumer.HeaderExchange, Value: []byte("orders")}}
	}
	record.Headers = append(record.Headers, more...)
	return record
}

// bury writes letters one after another, so that their times have this order.
func bury(t *testing.T, k *fakekafka.Cluster, records ...*kgo.Record) {
	t.Helper()
	for i, record := range records {
		record.Timestamp = time.UnixMilli(1_700_000_000_000 + int64(i))
		produce(t, k, record)
	}
}

// names are the names of the open letters, the oldest first.
func names(t *testing.T, d *consumer.DeadLetters) (all []string) {
	t.Helper()
	found, err := d.List(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		all = append(all, found[i].Name())
	}
	return all
}

func wantNames(t *testing.T, d *consumer.DeadLetters, want ...string) {
	t.Helper()
	if got := names(t, d); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the letters are %v, want %v", got, want)
	}
}

// Settled letters in the middle stay in the topic, and are left out. Records before the first open letter are deleted.
func TestTopicWithoutOpenLettersBecomesEmpty(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	same := func(id string) *kgo.Record {
		record := dead(id)
		record.Key = []byte("all in one partition")
		return record
	}
	bury(t, k, same("1"), same("2"), same("3"))
	d := deadLetters(t, k)
	held := func(want ...string) {
		t.Helper()
		var values []string
		for _, l := range letters(t, k, "payments.dead") {
			values = append(values, l.Payload)
		}
		if fmt.Sprint(values) != fmt.Sprint(want) {
			t.Errorf("the topic holds %q, want %q", values, want)
		}
	}
	if n, err := d.Discard(t.Context(), "shop/2"); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	held("body of 1", "body of 2", "body of 3", "discarded shop/2")
	wantNames(t, d, "shop/1", "shop/3")
	if n, err := d.Replay(t.Context(), consumer.Anywhere, "shop/1"); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	held("body of 3", "discarded shop/2", "replayed shop/1")
	wantNames(t, d, "shop/3")
	if n, err := d.Replay(t.Context(), consumer.Anywhere); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	held()
	bury(t, k, same("4"))
	wantNames(t, d, "shop/4")
	if back := letters(t, k, "orders"); len(back) != 2 {
		t.Errorf("%v came back", back)
	}
}

// Where nothing may be deleted, the letters are settled all the same.
func TestLettersSettleWithoutDeletePermission(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	bury(t, k, dead("1"), dead("2"))
	refuse(k, kmsg.DeleteRecords, kerr.TopicAuthorizationFailed)
	d := deadLetters(t, k)
	if n, err := d.Replay(t.Context(), consumer.Anywhere); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	wantNames(t, d)
	if n := len(letters(t, k, "payments.dead")); n != 4 {
		t.Errorf("the topic has %d records", n)
	}
	if n, err := d.Replay(t.Context(), consumer.Anywhere); n != 0 || err != nil {
		t.Errorf("replayed again %d, %v", n, err)
	}
}

// A mirror of the topic may have other offsets: a settlement with the offset of another letter settles nothing.
func TestSettlementOfAnotherLetterIsIgnored(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	letter := dead("1")
	bury(t, k, letter)
	stranger := func(of string) *kgo.Record {
		return &kgo.Record{
			Topic: "payments.dead", Key: letter.Key,
			Headers: []kgo.RecordHeader{{Key: kafkaconsumer.HeaderSettled, Value: []byte(of)}},
		}
	}
	at := fmt.Sprintf("%d/%d/", letter.Partition, letter.Offset)
	bury(t, k, stranger(at+"1"), stranger(at), stranger(""), stranger("a/b/c"))
	d := deadLetters(t, k)
	wantNames(t, d, "shop/1")
	bury(t, k, stranger(fmt.Sprintf("%s%d", at, letter.Timestamp.UnixMilli())))
	wantNames(t, d)
}

// Retention deletes all letters after a look has asked for the bounds of the topic. The look ends.
func TestDeletedLettersEndTheLook(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	for i := range keys { // in every partition
		bury(t, k, dead(fmt.Sprint(i)))
	}
	d := deadLetters(t, k)
	if n, err := d.Replay(t.Context(), consumer.Anywhere); n != keys || err != nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	k.Fake.ControlKey(int16(kmsg.ListOffsets), func(request kmsg.Request) (kmsg.Response, error, bool) {
		asked := request.(*kmsg.ListOffsetsRequest)
		response := request.ResponseKind().(*kmsg.ListOffsetsResponse)
		for _, topic := range asked.Topics {
			of := kmsg.NewListOffsetsResponseTopic()
			of.Topic = topic.Topic
			for _, partition := range topic.Partitions {
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Partition, p.Offset = partition.Partition, 0
				of.Partitions = append(of.Partitions, p)
			}
			response.Topics = append(response.Topics, of)
		}
		return response, nil, true // once: a broker answers the starts of before
	})
	wantNames(t, d)
}

// A letter that cannot be replayed stays, and the others are replayed.
func TestLetterWithoutAPlaceStays(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	origin := func(topic string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: consumer.HeaderExchange, Value: []byte(topic)}
	}
	bury(t, k, dead("gone", origin("gone")), dead("nameless", origin("")), dead("wrong", origin("a/b")), dead("good"))
	d := deadLetters(t, k)
	n, err := d.Replay(t.Context(), consumer.Anywhere)
	if n != 1 || err == nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	for _, want := range []string{
		"replay shop/gone: write to topic gone: UNKNOWN_TOPIC", "replay shop/nameless: the letter does not name its topic",
		"replay shop/wrong: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	wantNames(t, d, "shop/gone", "shop/nameless", "shop/wrong")
}

// A copy that the cluster does not store settles nothing.
func TestUnstoredReplayKeepsItsLetter(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	bury(t, k, dead("1"))
	refuse(k, kmsg.Produce, kerr.MessageTooLarge)
	d := deadLetters(t, k)
	n, err := d.Replay(t.Context(), consumer.Anywhere)
	if n != 0 || err == nil || !strings.Contains(err.Error(), "MESSAGE_TOO_LARGE") {
		t.Errorf("replayed %d, %v", n, err)
	}
	if n, err := d.Discard(t.Context(), "shop/1"); n != 0 || err == nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	wantNames(t, d, "shop/1")
}

// The copy is stored before its letter is settled: a replay that is interrupted in between leaves both.
func TestInterruptedReplayLeavesBoth(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	bury(t, k, dead("1"), dead("2"))
	k.Configure("payments.dead", "max.message.bytes", "50") // no settlement is so small
	d := deadLetters(t, k)
	n, err := d.Replay(t.Context(), consumer.Anywhere)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "shop/1 is replayed, and stays among the dead letters") {
		t.Errorf("replayed %d, %v", n, err)
	}
	wantNames(t, d, "shop/1", "shop/2")
	k.Configure("payments.dead", "max.message.bytes", "1000000")
	if n, err := d.Replay(t.Context(), consumer.Anywhere); n != 2 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	wantNames(t, d)
	for _, l := range letters(t, k, "orders") {
		if l.header("msghandler-attempt") != "2" {
			t.Errorf("a copy is not flagged: %+v", l)
		}
	}
	if back := letters(t, k, "orders"); len(back) != 3 {
		t.Errorf("%v came back", back)
	}
}

// The cluster is killed while letters are replayed. Repeated replays bring every message back.
func TestKilledClusterLosesNoLetter(t *testing.T) {
	t.Parallel()
	k := graveyard(t)
	const count = 500
	buried := make([]*kgo.Record, count)
	for i := range buried {
		buried[i] = dead(fmt.Sprint(i))
	}
	produce(t, k, buried...)
	var writes atomic.Int64
	some := make(chan struct{})
	k.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		if writes.Add(1) == count/10 {
			close(some)
		}
		return nil, nil, false
	})
	d := deadLetters(t, k)
	replayed := make(chan error, 1)
	go func() {
		_, err := d.Replay(t.Context(), consumer.Anywhere)
		replayed <- err
	}()
	<-some
	k.Kill()
	k.Restart()
	<-replayed // the client may have repeated what was under way
	servers.Eventually(t, time.Minute, "all are replayed", func() bool {
		_, err := d.Replay(t.Context(), consumer.Anywhere)
		return err == nil
	})
	wantNames(t, d)
	back := map[string]bool{}
	for _, l := range letters(t, k, "orders") {
		back[l.header("msghandler-id")] = true
	}
	if len(back) != count {
		t.Errorf("%d of %d messages came back", len(back), count)
	}
}

func TestDeadLettersNameTheMissingTopic(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	if _, err := deadLetters(t, k).List(t.Context(), 1); !errors.Is(err, kerr.UnknownTopicOrPartition) ||
		!strings.Contains(err.Error(), "read the dead-letter topic payments.dead") {
		t.Error(err)
	}
	for url, topic := range map[string]string{
		"amqp://h": "t", "kafka://h": "", "kafka://g": "a/b", "kafka://h?tls=true&ca=/no/such/file": "t",
	} {
		if _, err := kafkaconsumer.NewDeadLetters(url, nil, topic); err == nil {
			t.Errorf("%s with the topic %q was taken", url, topic)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if _, err := deadLetters(t, k).List(ctx, 1); err == nil {
		t.Error("a context without time was taken")
	}
}

// A letter may be larger than the 1 MiB that publishers send.
func TestLargeLetterIsReplayed(t *testing.T) {
	t.Parallel()
	k := fakekafka.Start(t, nil, kgo.ProducerBatchMaxBytes(8<<20))
	for _, topic := range []string{"orders", "payments.dead"} {
		k.Topic(topic, map[string]string{"max.message.bytes": "8388608"})
	}
	letter := dead("1")
	letter.Value = make([]byte, 3<<20)
	bury(t, k, letter)
	if n, err := deadLetters(t, k).Replay(t.Context(), consumer.Anywhere); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
}
