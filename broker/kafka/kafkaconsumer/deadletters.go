package kafkaconsumer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// DeadLetters manages the letters of a dead-letter topic: letters of consumers, and dead messages of the coordinator.
// Its methods connect, read the topic from its start to its end, and read the letters that they look for once more:
// about 16 MiB of letters are in memory. No consumer group is used, so looking changes nothing, also for others who
// look at the same time.
//
// Kafka removes no single record. A letter that is replayed or discarded gets a settlement: a record behind the letter
// in the same partition, with the header HeaderSettled. Letters with a settlement are left out here. Other readers of
// the topic must leave out both. Settled records at the start of a partition are then deleted (DeleteRecords), so a
// topic without open letters becomes empty. Where the user has no permission to delete, the topic keeps these records
// until its retention.
//
// The user needs the permissions to describe and to read the topic. Replay and Discard also need to write to the topic,
// and Replay needs to write to the topics of the messages.
type DeadLetters struct {
	connection kafkaconn.Config
	topic      string
}

// NewDeadLetters describes a dead-letter topic. The first method call connects. URL and TLS are as in Config.
func NewDeadLetters(url string, tls *tls.Config, topic string) (*DeadLetters, error) {
	cluster, err := address.ParseKafka(url)
	if err != nil {
		return nil, fmt.Errorf("kafkaconsumer.NewDeadLetters: URL %w", err)
	}
	if err := (&kafkaconn.Message{Topic: topic}).Check(); err != nil {
		return nil, fmt.Errorf("kafkaconsumer.NewDeadLetters: the dead-letter topic: %w", err)
	}
	d := &DeadLetters{topic: topic, connection: kafkaconn.Config{
		Address: cluster, Name: "msghandler dead letters", TLS: tls, AnswerTimeout: answerTimeout,
	}}
	if _, err := d.connection.Options(); err != nil {
		return nil, fmt.Errorf("kafkaconsumer.NewDeadLetters: %w", err)
	}
	return d, nil
}

// List gives the oldest letters by their time.
func (d *DeadLetters) List(ctx context.Context, limit int) ([]consumer.Letter, error) {
	return d.ListSelected(ctx, consumer.Selection{Limit: max(limit, 1)})
}

// ListSelected gives the letters of a selection, the oldest by their time first.
func (d *DeadLetters) ListSelected(
	ctx context.Context, s consumer.Selection,
) (letters []consumer.Letter, err error) {
	s = s.WithDefaults()
	err = d.each(ctx, s.Match, s.Limit, func(l *letter) bool {
		letters = append(letters, l.Letter)
		return false
	})
	return letters, err
}

// each visits the letters that match, the oldest first.
func (d *DeadLetters) each(
	ctx context.Context, match func(*consumer.Letter) bool, limit int, visit func(*letter) (last bool),
) error {
	w, err := d.walk(ctx, match)
	if err != nil {
		return err
	}
	defer w.close()
	return w.visit(ctx, w.places(limit), visit)
}

// Show gives the letter with a Message.Key, or consumer.ErrNoLetter. A letter without an id is asked for by PRODUCER/,
// here and in Replay and Discard.
func (d *DeadLetters) Show(ctx context.Context, key string) (consumer.Letter, error) {
	found, err := d.ListSelected(ctx, consumer.Selection{
		Limit: 1, Match: deadletter.WithKey[*consumer.Letter]([]string{key}),
	})
	switch {
	case err != nil:
		return consumer.Letter{}, err
	case len(found) == 0:
		return consumer.Letter{}, fmt.Errorf("%s: %w", key, consumer.ErrNoLetter)
	}
	return found[0], nil
}

// Count counts the letters with these keys, as Discard would remove them; all letters when no keys are given.
func (d *DeadLetters) Count(ctx context.Context, keys ...string) (count int, err error) {
	s := consumer.Selection{Match: deadletter.WithKey[*consumer.Letter](keys)}.WithDefaults()
	w, err := d.walk(ctx, s.Match)
	if err != nil {
		return 0, err
	}
	defer w.close()
	return len(w.places(s.Limit)), nil
}

// Replay writes letters again, to their first topic and with their first key, as if they had never failed; all letters
// when no keys are given. A letter is settled when all in-sync replicas have its copy. The copy has a
// msghandler-attempt above 1; an interrupted or repeated replay may write further copies, and the inbox drops copies of
// a handled message. Replay returns the number of replayed letters; the others stay, and the error names them.
func (d *DeadLetters) Replay(ctx context.Context, may consumer.Rule, keys ...string) (replayed int, err error) {
	return d.ReplaySelected(ctx, consumer.Selection{Match: deadletter.WithKey[*consumer.Letter](keys), MayReplay: may})
}

// Discard settles the letters with these keys for good, and returns how many they were.
func (d *DeadLetters) Discard(ctx context.Context, keys ...string) (discarded int, err error) {
	return d.DiscardOldest(ctx, math.MaxInt, keys...)
}

// DiscardOldest is Discard for at most limit letters, the oldest first. A limit below 0 is an error.
func (d *DeadLetters) DiscardOldest(ctx context.Context, limit int, keys ...string) (discarded int, err error) {
	if limit <= 0 {
		return 0, deadletter.CheckLimit(limit)
	}
	if len(keys) == 0 {
		return 0, nil
	}
	return d.DiscardSelected(ctx, consumer.Selection{Limit: limit, Match: deadletter.WithKey[*consumer.Letter](keys)})
}

// ReplaySelected is Replay for a selection, whether or not the replay of each letter succeeds.
func (d *DeadLetters) ReplaySelected(ctx context.Context, s consumer.Selection) (replayed int, err error) {
	if s.MayReplay == nil {
		return 0, consumer.ErrNoRule
	}
	s = s.WithDefaults()
	w, err := d.walk(ctx, s.Match)
	if err != nil {
		return 0, err
	}
	defer w.close()
	var failed []error
	err = w.visit(ctx, w.places(s.Limit), func(l *letter) (last bool) {
		if ctx.Err() != nil {
			return true
		}
		err := s.MayReplay(&l.Letter)
		if err == nil {
			err = w.post(ctx, l)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("replay %s: %w", l.Name(), err))
			return false
		}
		replayed++
		s.Changed(&l.Letter)
		if err = w.settle(ctx, l, "replayed"); err != nil {
			failed = append(failed, fmt.Errorf("%s is replayed, and stays among the dead letters; discard it: %w",
				l.Name(), err))
		}
		return err != nil
	})
	if replayed > 0 {
		w.trim(ctx)
	}
	return replayed, errors.Join(append(failed, cmp.Or(err, ctx.Err()))...)
}

// DiscardSelected is Discard for a selection.
func (d *DeadLetters) DiscardSelected(ctx context.Context, s consumer.Selection) (discarded int, err error) {
	s = s.WithDefaults()
	w, err := d.walk(ctx, s.Match)
	if err != nil {
		return 0, err
	}
	defer w.close()
	var failed error
	err = w.visit(ctx, w.places(s.Limit), func(l *letter) (last bool) {
		if failed = ctx.Err(); failed != nil {
			return true
		}
		if failed = w.settle(ctx, l, "discarded"); failed != nil {
			failed = fmt.Errorf("discard %s: %w", l.Name(), failed)
			return true
		}
		discarded++
		s.Changed(&l.Letter)
		return false
	})
	if discarded > 0 {
		w.trim(ctx)
	}
	return discarded, cmp.Or(err, failed)
}

// Visit shows the letters without their bodies to a function, the oldest first, until the function returns false. The
// topic is read whole before.
func (d *DeadLetters) Visit(ctx context.Context, visit func(*consumer.Letter) bool) error {
	return d.each(ctx, consumer.Selection{}.WithDefaults().Match, math.MaxInt, func(l *letter) bool {
		l.Body = nil
		return !visit(&l.Letter)
	})
}

// Oldest gives the oldest letter without its body, or consumer.ErrNoLetter. The topic is read whole before.
func (d *DeadLetters) Oldest(ctx context.Context) (consumer.Letter, error) {
	found, err := d.List(ctx, 1)
	switch {
	case err != nil:
		return consumer.Letter{}, err
	case len(found) == 0:
		return consumer.Letter{}, consumer.ErrNoLetter
	}
	found[0].Body = nil
	return found[0], nil
}

// Depth asks for the number of records in the topic, and reads none. Settled letters and their settlements count until
// the letters before them are settled.
func (d *DeadLetters) Depth(ctx context.Context) (int, error) {
	w := &walk{connection: d.connection, topic: d.topic}
	defer w.close()
	if err := w.connect(ctx); err != nil {
		return 0, fmt.Errorf("look at the dead-letter topic %s: %w", d.topic, err)
	}
	found, err := topicOffsets(ctx, w.copies.Client(), d.topic)
	if err != nil {
		return 0, fmt.Errorf("look at the dead-letter topic %s: %w", d.topic, err)
	}
	return records(found), nil
}
