package kafkaconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// maxMessage is the largest batch of records without max_message_bytes: a little less than Kafka's own default for
// max.message.bytes, 1048588.
const maxMessage = 1 << 20

const (
	// tries is how often the client tries to write a record while the cluster answers that it cannot take the record
	// now. The caller has a longer schedule of its own, and wants to know the reason.
	tries = 4
	// unknownTries is how often the client asks for a topic that the cluster does not know: a broker may learn of a new
	// topic a little later than another.
	unknownTries = 2
	// firstWait and longestWait bound the waits between the client's tries.
	firstWait, longestWait = 50 * time.Millisecond, 500 * time.Millisecond
	// closeTimeout bounds the wait for the last goroutines of closed clients.
	closeTimeout = 5 * time.Second
)

// ProducerConfig says how to write.
type ProducerConfig struct {
	Config
	// Window is how many records may be on their way at once.
	Window int
	// Partitioned writes each record into its own Partition, and not into the partition of its key.
	Partitioned bool
	// OnLoss is called when a connection has ended, and may be nil. It must not block.
	OnLoss func()
	// OnDataLoss is called when the cluster has lost records that it had acknowledged, and may be nil.
	OnDataLoss func(topic string, partition int32)
}

// Producer writes records from the first connection to the loss of the cluster. Nothing of a closed Producer is used
// again. It is safe for concurrent use.
type Producer struct {
	config ProducerConfig
	// shared writes most records; alone writes one record at a time, in a batch of its own.
	shared, alone lane
	lonely        chan struct{}
	// closing ends with the call of Close.
	closing context.Context
	cancel  context.CancelFunc
	// late has goroutines whose caller may not wait any more, and the answers to records. They end at the latest when the
	// clients are closed.
	late lifecycle.Group
}

// NewProducer returns a producer that connects with the first record or call of Reach.
func NewProducer(config ProducerConfig) (*Producer, error) {
	p := &Producer{config: config, lonely: make(chan struct{}, 1)}
	p.closing, p.cancel = context.WithCancel(context.Background())
	for _, l := range []*lane{&p.shared, &p.alone} {
		w, err := p.newWriter()
		if err != nil {
			p.Close()
			return nil, err
		}
		l.writer = w
	}
	return p, nil
}

// newWriter makes a client that writes.
func (p *Producer) newWriter() (*writer, error) {
	config, w := &p.config, &writer{}
	options, err := config.options(w.requests.watched)
	if err != nil {
		return nil, err
	}
	largest := maxMessage
	if config.Address.MaxMessage > 0 {
		largest = config.Address.MaxMessage
	}
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), maxProduceVersion)
	options = append(options,
		kgo.MaxVersions(versions),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		// Otherwise a record whose request has no answer blocks its partition for ever.
		kgo.AllowIdempotentProduceCancellation(),
		kgo.ProducerBatchMaxBytes(int32(largest)),
		kgo.BrokerMaxWriteBytes(int32(max(100<<20, largest+1<<20))),
		kgo.MaxBufferedRecords(max(config.Window, 1)),
		kgo.ProduceRequestTimeout(max(config.AnswerTimeout, time.Second)),
		kgo.RecordRetries(tries),
		kgo.UnknownTopicRetries(unknownTries),
		kgo.RetryBackoffFn(func(failures int) time.Duration {
			wait := min(firstWait<<min(failures, 10), longestWait)
			return wait - rand.N(wait/2) //nolint:gosec // jitter is no secret
		}),
		kgo.ProducerLinger(0),
		kgo.WithHooks(p),
	)
	if config.Partitioned {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if config.OnDataLoss != nil {
		options = append(options, kgo.ProducerOnDataLossDetected(config.OnDataLoss))
	}
	if w.client, err = kgo.NewClient(options...); err != nil {
		return nil, fmt.Errorf("make a client of Kafka: %w", err)
	}
	return w, nil
}

// Close ends all connections. Records without an answer get one before Close returns.
func (p *Producer) Close() {
	p.cancel()
	for _, l := range []*lane{&p.shared, &p.alone} {
		l.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = p.late.Wait(ctx)
}

// Write writes a record and calls answered once, on another goroutine, which must not block. The context ends the
// wait for the answer as soon as the client notices; then a broker may have the record. The record belongs to the
// client until the answer.
func (p *Producer) Write(ctx context.Context, record *kgo.Record, answered func(Answer)) {
	p.write(ctx, &p.shared, record, answered)
}

// write writes a record, and once more with a new client if the topic was made again and no broker has the record.
func (p *Producer) write(ctx context.Context, l *lane, record *kgo.Record, answered func(Answer)) {
	p.late.Begin() // the client's Close does not wait for the last answers
	end := func(a Answer) {
		defer p.late.End()
		answered(a)
	}
	l.write(ctx, record, func(w *writer, a Answer) {
		if !errors.Is(a.Err, kerr.UnknownTopicID) || !p.renew(l, w) || a.Fate != Unwritten {
			end(a)
			return
		}
		l.write(ctx, record, func(_ *writer, a Answer) { end(a) })
	})
}

// WriteAlone writes a record in a batch of its own, and waits for the answer: a record that the broker refuses takes
// no other record with it. Records that are written alone follow one another.
func (p *Producer) WriteAlone(ctx context.Context, record *kgo.Record) Answer {
	select {
	case p.lonely <- struct{}{}:
	case <-ctx.Done():
		return Answer{Fate: Unwritten, Err: fmt.Errorf("not written in time: %w", context.Cause(ctx))}
	}
	answers := make(chan Answer, 1)
	p.write(ctx, &p.alone, record, func(a Answer) { answers <- a })
	release := func() { <-p.lonely }
	select {
	case a := <-answers:
		release()
		return a
	case <-ctx.Done():
		p.late.Go(func() {
			<-answers
			release()
		})
		return Answer{Fate: Unknown, Err: fmt.Errorf("no answer of the broker in time: %w", context.Cause(ctx))}
	}
}

// Reach returns nil as soon as one broker answers, and otherwise the error of a broker.
func (p *Producer) Reach(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := p.Client()
	brokers := append(client.DiscoveredBrokers(), client.SeedBrokers()...)
	answers := make(chan error, len(brokers))
	for _, broker := range brokers {
		p.late.Go(func() {
			request := kmsg.NewPtrMetadataRequest()
			request.Topics = []kmsg.MetadataRequestTopic{}
			_, err := broker.Request(ctx, request)
			answers <- err
		})
	}
	var failed error
	for range brokers {
		select {
		case err := <-answers:
			if err == nil {
				return nil
			}
			failed = err
		case <-ctx.Done():
			return fmt.Errorf("no broker answers: %w", errors.Join(context.Cause(ctx), failed))
		}
	}
	if errors.Is(failed, io.EOF) {
		// Older brokers, and brokers that expect TLS, refuse a connection without a word.
		return fmt.Errorf("%w: a broker closed it without a word (%w); check user, password, sasl and tls",
			publish.ErrHandshake, failed)
	}
	if slices.ContainsFunc(accessErrors, func(refusal *kerr.Error) bool { return errors.Is(failed, refusal) }) {
		return fmt.Errorf("%w: %w", publish.ErrAccessRefused, failed)
	}
	return failed
}

// Client is the client that writes most records now, for other requests.
func (p *Producer) Client() *kgo.Client { return p.shared.present().client }

// OnBrokerDisconnect implements a hook of the client.
func (p *Producer) OnBrokerDisconnect(kgo.BrokerMetadata, net.Conn) {
	if p.config.OnLoss != nil {
		p.config.OnLoss()
	}
}

var _ kgo.HookBrokerDisconnect = (*Producer)(nil)
