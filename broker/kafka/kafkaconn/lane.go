package kafkaconn

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// lane writes records with one client after another.
type lane struct {
	mu     sync.Mutex
	writer *writer // nil only while a Producer is made
}

// writer is a client, with its produce requests and the records that it has not answered.
type writer struct {
	client   *kgo.Client
	requests requests
	records  lifecycle.Group
}

func (l *lane) present() *writer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writer
}

// write writes a record with the present client. answered gets that client, too.
func (l *lane) write(ctx context.Context, record *kgo.Record, answered func(*writer, Answer)) {
	l.mu.Lock()
	w := l.writer
	w.records.Begin()
	l.mu.Unlock()
	topic := whole(record.Topic)
	before := w.requests.of(topic)
	w.client.Produce(ctx, record, func(r *kgo.Record, err error) {
		defer w.records.End()
		now := w.requests.of(topic)
		now.open = w.requests.of(part{topic: r.Topic, partition: r.Partition}).open
		answered(w, judgeAnswer(err, before, now))
	})
}

// renew gives a lane a new client in place of one that knows a topic which was deleted and made again: the client
// refuses that topic for as long as it lives. The client must not forget the topic instead: it would count its records
// from zero once more, under an id that the new topic may know, and the broker would take new records for copies of
// stored ones. renew reports false when the producer closes, or without a client.
func (p *Producer) renew(l *lane, old *writer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.writer != old || p.closing.Err() != nil {
		return p.closing.Err() == nil
	}
	w, err := p.newWriter()
	if err != nil {
		return false // a file of the address cannot be used now; the next answer tries again
	}
	l.writer = w
	p.late.Go(func() {
		_ = old.records.Wait(p.closing) // records of other topics
		old.client.Close()
	})
	return true
}

func (l *lane) close() {
	if w := l.present(); w != nil {
		w.client.Close()
	}
}
