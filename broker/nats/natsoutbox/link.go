package natsoutbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// link is one connection, from dial to loss.
type link struct {
	conn *nats.Conn
	js   jetstream.JetStream
	// lost is closed when the connection has ended.
	lost chan struct{}

	mu sync.Mutex
	// forbidden has the subjects that the server forbids, and why; changed is closed and replaced with each addition.
	forbidden map[string]error
	changed   chan struct{}
}

func dial(ctx context.Context, where address.NATS, config Config) (*link, error) {
	l := &link{lost: make(chan struct{}), forbidden: make(map[string]error), changed: make(chan struct{})}
	var err error
	l.conn, err = natsconn.Dial(ctx, where, natsconn.Config{
		Name: "outbox " + config.Producer, TLS: config.TLS, DialTimeout: ioTimeout, PingInterval: ioTimeout,
		WriteTimeout: ioTimeout, OnError: l.note, OnClosed: func() { close(l.lost) },
	})
	if err != nil {
		return nil, fmt.Errorf("NATS: %w", err)
	}
	// Messages without an answer are forgotten some time after their batch.
	l.js, err = jetstream.New(l.conn, jetstream.WithPublishAsyncTimeout(2*answerTimeout))
	if err != nil {
		l.conn.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return l, nil
}

func (l *link) close() {
	l.conn.Close()
	<-l.lost
	l.js.CleanupPublisher()
}

// begin forgets what was forbidden: the permissions may have changed since the last batch.
func (l *link) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.forbidden)
}

// note takes an error that the server sent apart from any answer.
func (l *link) note(err error) {
	subject := natsconn.Forbidden(err)
	if subject == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forbidden[subject] = err
	close(l.changed)
	l.changed = make(chan struct{})
}

// refusal says why the server forbids a subject, if it does, after a channel that is closed when the answer may have
// changed.
func (l *link) refusal(subject string) (changed <-chan struct{}, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed, l.forbidden[subject]
}

// errUnanswered: a stream has not answered in time.
var errUnanswered = errors.New("no answer of the stream in time")

// await waits for the answer to a message. The server answers a forbidden message with an error that names only the
// subject.
func (l *link) await(ctx context.Context, p *publishing) error {
	for {
		changed, forbidden := l.refusal(p.message.Subject)
		if forbidden != nil {
			return p.answer(forbidden)
		}
		select {
		case <-p.future.Ok():
			return nil
		case err := <-p.future.Err():
			return err
		case <-changed:
		case <-l.lost:
			return p.answer(nats.ErrConnectionClosed)
		case <-ctx.Done():
			return p.answer(errUnanswered)
		}
	}
}

// answer is the answer that the message has already, or else the error.
func (p *publishing) answer(otherwise error) error {
	select {
	case <-p.future.Ok():
		return nil
	case err := <-p.future.Err():
		return err
	default:
		return otherwise
	}
}
