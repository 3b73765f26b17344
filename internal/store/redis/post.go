package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// attendingMemory is how long a producer is remembered that has attended.
	attendingMemory = 24 * time.Hour
	// maxAnnounced bounds the producers in one pipeline.
	maxAnnounced = 500
)

// Announce notes that a mailbox leads to streams of producers, for a time from now on; zero takes the note back. Errors
// are the store's.
func (s *Store) Announce(ctx context.Context, mailbox string, producers []string, lasting time.Duration) error {
	for len(producers) > 0 {
		part := producers[:min(len(producers), maxAnnounced)]
		producers = producers[len(part):]
		calls := make([]*call, len(part))
		for i, producer := range part {
			calls[i] = s.attendCall(producer, mailbox, lasting)
		}
		run(ctx, s.loops, s.scripts.attend, calls)
		for _, c := range calls {
			if c.err != nil {
				return c.err
			}
		}
	}
	return nil
}

// Mailboxes are the announced mailboxes of a producer, and how long ago it was last announced: negative where it was
// not within a day. Errors are the store's.
func (s *Store) Mailboxes(
	ctx context.Context, producer string,
) (mailboxes []string, announced time.Duration, err error) {
	c := s.attendCall(producer, "", 0)
	run(ctx, s.loops, s.scripts.attend, []*call{c})
	if c.err != nil {
		return nil, -1, c.err
	}
	for i := 1; i < len(c.reply); i++ {
		if mailbox, is := c.reply[i].(string); is {
			mailboxes = append(mailboxes, mailbox)
		}
	}
	left, _ := c.answer(0).(int64)
	if left <= 0 {
		return mailboxes, -1, nil
	}
	return mailboxes, max(0, attendingMemory-time.Duration(left)*time.Millisecond), nil
}

func (s *Store) attendCall(producer, mailbox string, lasting time.Duration) *call {
	c := newCall(attendingKey(s.config.Prefix, producer), 3)
	c.args = append(c.args, mailbox, lasting.Milliseconds(), attendingMemory.Milliseconds())
	return c
}

// Send sends a peer message, and reports whether someone receives from the mailbox. Errors are the store's.
func (s *Store) Send(ctx context.Context, mailbox string, peerMessage []byte) (received bool, err error) {
	channel := postChannel(s.config.Prefix, mailbox)
	var receivers int64
	if onCluster, is := s.loops.(*cluster); is {
		// A Cluster carries other peer messages to all of its nodes, and counts only the receivers at one of them.
		receivers, err = onCluster.SPublish(ctx, channel, peerMessage).Result()
	} else {
		receivers, err = s.loops.Publish(ctx, channel, peerMessage).Result()
	}
	return receivers > 0, translate(err)
}

// Receive hands the peer messages of a mailbox over until ctx ends or the subscription breaks. deliver must not block.
func (s *Store) Receive(ctx context.Context, mailbox string, deliver func(peerMessage []byte)) error {
	channel := postChannel(s.config.Prefix, mailbox)
	var subscription *redis.PubSub
	if onCluster, is := s.loops.(*cluster); is {
		subscription = onCluster.SSubscribe(ctx, channel)
	} else {
		subscription = s.loops.Subscribe(ctx, channel)
	}
	defer context.AfterFunc(ctx, func() { _ = subscription.Close() })()
	defer func() { _ = subscription.Close() }() // its connection is not used again
	for {
		received, err := subscription.Receive(ctx)
		if err != nil {
			return translate(err)
		}
		switch r := received.(type) {
		case *redis.Message:
			deliver([]byte(r.Payload))
		case *redis.Subscription:
			if r.Count == 0 {
				return fmt.Errorf("%w: Redis has ended the subscription to %s", errNoPeerMessages, channel)
			}
		}
	}
}
