package kafkaconn

import (
	"io"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// produce is a request with one batch, as the client writes it.
func produce(version int16, topic string) []byte {
	request := kmsg.NewPtrProduceRequest()
	request.Version = version
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = 2, []byte("records")
	t.Partitions = append(t.Partitions, p)
	request.Topics = append(request.Topics, t)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("msghandler")).AppendRequest(nil, request, 7)
}

// Requests of each version count. A request with ids of topics is not understood, and no byte of it is written.
func TestEachVersionOfRequestsCounts(t *testing.T) {
	t.Parallel()
	for version := int16(3); version <= maxProduceVersion+1; version++ {
		var counts requests
		near, far := net.Pipe()
		written := make(chan int)
		go func() {
			b, _ := io.ReadAll(far) // a closed pipe ends the bytes
			written <- len(b)
		}()
		conn := counts.watched(near)
		request := produce(version, "paid")
		_, err := conn.Write(request)
		open := counts.of(part{topic: "paid", partition: 2}).open
		if closed := conn.Close(); closed != nil {
			t.Fatal(closed)
		}
		got, after := <-written, counts.of(whole("paid"))
		if version > maxProduceVersion {
			if err == nil || got > 0 || after != (traffic{}) {
				t.Errorf("version %d: %v, %d bytes written, %+v", version, err, got, after)
			}
			continue
		}
		if err != nil || got != len(request) || open != 1 || after != (traffic{begun: 1, doubtful: 1}) {
			t.Errorf("version %d: %v, %d bytes written, %d open, then %+v", version, err, got, open, after)
		}
	}
}
