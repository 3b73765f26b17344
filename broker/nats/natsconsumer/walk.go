package natsconsumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
)

// walk is a pass over a dead-letter stream.
type walk struct {
	conn   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	// targets are the streams of replays that have been looked up, with the reason not to publish there, or nil.
	targets  map[string]error
	refusals natsconn.Refusals
}

// Scan refuses a change of a stream that keeps its messages.
func (d *deadLetterStream) Scan(
	ctx context.Context, s consumer.Scan, visit func(consumer.FoundLetter) (last bool, err error),
) error {
	w, err := d.open(ctx)
	if err != nil {
		return err
	}
	defer w.conn.Close()
	newest := w.stream.CachedInfo().State.LastSeq
	for next := uint64(1); next <= newest; {
		record, err := w.read(ctx, next)
		if err != nil {
			return fmt.Errorf("read the stream %q: %w", d.stream, err)
		}
		if record == nil || record.Sequence > newest {
			break
		}
		next = record.Sequence + 1
		l := newLetter(d.stream, record)
		if !s.Match(&l.Letter) {
			continue
		}
		if s.Purpose == consumer.ToChange {
			if err := w.removable(); err != nil {
				return err
			}
		}
		if last, err := visit(&foundLetter{l, w}); last || err != nil {
			return err
		}
	}
	return nil
}

// open connects, and looks the stream up.
func (d *deadLetterStream) open(ctx context.Context) (*walk, error) {
	w := &walk{targets: map[string]error{}}
	var err error
	w.conn, err = natsconn.Dial(ctx, d.address, natsconn.Config{
		Name: "dead letters", TLS: d.tls, DialTimeout: ioTimeout, PingInterval: ioTimeout, WriteTimeout: ioTimeout,
		OnError: func(err error) { w.refusals.Note(err) },
	})
	if err != nil {
		return nil, err
	}
	if w.js, err = jetstream.New(w.conn); err == nil {
		err = w.ask(ctx, func(ctx context.Context) (err error) {
			w.stream, err = w.js.Stream(ctx, d.stream)
			return err
		})
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w; name the DeadLetterStream of the consumers, or create it", err)
	}
	if err != nil {
		w.conn.Close()
		return nil, fmt.Errorf("look up the stream %q: %w", d.stream, err)
	}
	return w, nil
}

// ask bounds a request. A walk makes one request after the other, so a refusal is that of the request.
func (w *walk) ask(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	return w.refusals.Ask(ctx, "", request)
}

// read returns the first record from a sequence number on; nil if none is left.
func (w *walk) read(ctx context.Context, from uint64) (record *jetstream.RawStreamMsg, err error) {
	err = w.ask(ctx, func(ctx context.Context) (err error) {
		record, err = w.stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(">")) // the first with any subject
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return record, err
}

// removable refuses a change of a stream that keeps its messages: a replayed letter could not be removed.
func (w *walk) removable() error {
	if c := w.stream.CachedInfo().Config; c.DenyDelete || c.Sealed {
		return fmt.Errorf("the stream %q lets no user remove single messages (deny_delete or sealed): nothing was changed; "+
			"use a dead-letter stream without these options", c.Name)
	}
	return nil
}

// post publishes a copy of a letter, and returns nil when the letter's stream has the copy.
func (w *walk) post(ctx context.Context, l *letter) error {
	if err := l.check(); err != nil {
		return err
	}
	if err := w.target(ctx, l.Exchange); err != nil {
		return err
	}
	err := w.ask(ctx, func(ctx context.Context) error {
		_, err := w.js.PublishMsg(ctx, l.replay(), jetstream.WithExpectStream(l.Exchange))
		return err
	})
	fate, cause := natsconn.Judge(err)
	if fate == natsconn.Untaken {
		_, cause = new(natsconn.Streams).Untaken(ctx, w.js, l.Exchange, l.RoutingKey)
	}
	return cause
}

// target refuses a stream that would acknowledge and drop a replay, as no queue of RabbitMQ may be missing either.
func (w *walk) target(ctx context.Context, name string) error {
	if why, known := w.targets[name]; known {
		return why
	}
	var info *jetstream.StreamInfo
	err := w.ask(ctx, func(ctx context.Context) (err error) {
		info, err = natsconn.Find(ctx, w.js, name)
		return err
	})
	switch {
	case err != nil:
		return fmt.Errorf("look up the stream %q: %w", name, err) // may succeed for the next letter
	case info.Config.Retention == jetstream.InterestPolicy && info.State.Consumers == 0:
		err = fmt.Errorf("the stream %q drops messages while it has no consumer (retention: interest); "+
			"start its consumers first", name)
	}
	w.targets[name] = err
	return err
}

// remove removes a letter, also after the end of the context: a replayed letter that stays may be replayed again.
func (w *walk) remove(ctx context.Context, l *letter) error {
	return w.ask(context.WithoutCancel(ctx), func(ctx context.Context) error {
		return w.stream.DeleteMsg(ctx, l.record.Sequence)
	})
}
