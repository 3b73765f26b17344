package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// No process lives to see a message fail that ends the processes which handle it, and JetStream counts deliveries only,
// also those that processes gave back when they stopped. So a process notes in the metadata of the durable consumer
// that it handles a message which was delivered far more often than allowed. The process takes the note back when the
// message goes back. Each process has notes of its own, so an update may be repeated whose answer was lost.

// metaBegun begins the name of such a note. The sequence of the message in the stream follows, and the process.
const metaBegun = "msghandler-begun."

const (
	// farMore is how many times as often as allowed a message must be delivered to get a note. leastFarMore bounds the
	// number from below.
	farMore, leastFarMore = 4, 20
	// mostBegun is how many processes may have begun a message and told nothing before it becomes a dead letter.
	mostBegun = 5
	// overwriting is how long another process may take between reading the notes and writing them.
	overwriting = 100 * time.Millisecond
)

// begin notes that this process handles a message that was delivered far too often, and rejects a message that ends the
// processes which handle it.
func (s *session) begin(t *task) error {
	limit, sequence := s.run.MaxDeliveries, t.meta.Sequence.Stream
	count := s.run.failures.unexplained(sequence, int(t.meta.NumDelivered)) //nolint:gosec // few
	if limit == 0 || s.run.failures.isNoted(sequence) || count <= max(farMore*limit, leastFarMore) {
		return nil
	}
	times, err := s.noteBegun(sequence)
	switch {
	case errors.Is(err, natsconn.ErrForbidden): // without notes the deliveries decide
	case err != nil:
		return consumer.Transient(fmt.Errorf("note that the handling begins: %w", err))
	case times <= mostBegun:
		s.run.failures.setNoted(sequence, true)
		return nil
	}
	return consumer.Reject(fmt.Errorf("delivered %d times, and no process told how its handling ended: "+
		"does the handler end its process", count))
}

// noteBegun notes a message, and returns how many processes have noted the message then.
func (s *session) noteBegun(sequence uint64) (times int, err error) {
	s.run.noting.Lock()
	defer s.run.noting.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	notes, _, err := s.writeNotes(ctx, sequence)
	for name := range notes {
		if strings.HasPrefix(name, noteOf(sequence)) {
			times++
		}
	}
	return times, err
}

// takeBack takes the note of a message back that goes back to the server. JetStream compares nothing in an update, so
// another process that has read the notes before may write them again: takeBack looks until the note stays away.
func (s *session) takeBack(t *task) {
	if !s.run.failures.isNoted(t.meta.Sequence.Stream) {
		return
	}
	s.run.failures.setNoted(t.meta.Sequence.Stream, false)
	s.run.noting.Lock()
	defer s.run.noting.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	for {
		_, changed, err := s.writeNotes(ctx, 0)
		if err != nil || !changed { // after an error the note stays, and counts this process once
			return
		}
		_ = backoff.Sleep(ctx, overwriting+rand.N(overwriting)) //nolint:gosec // jitter is no secret
	}
}

// writeNotes makes the notes of this process those of the messages that it handles, and of one more unless that is 0.
// It returns all notes, and whether they had to be changed.
func (s *session) writeNotes(ctx context.Context, more uint64) (notes map[string]string, changed bool, err error) {
	info, err := s.info(ctx, s.durable)
	if err != nil {
		return nil, false, err
	}
	config := info.Config
	config.Metadata = s.notesOfOthers(info)
	for _, sequence := range append(s.run.failures.noted(), more) {
		if sequence > 0 {
			config.Metadata[noteOf(sequence)+s.run.id] = "1"
		}
	}
	if maps.Equal(config.Metadata, info.Config.Metadata) {
		return config.Metadata, false, nil
	}
	err = s.refusals.Ask(ctx, s.run.createSubject(), func(ctx context.Context) error {
		_, err := s.js.UpdateConsumer(ctx, s.run.Stream, config)
		return err
	})
	return config.Metadata, true, err
}

// noteOf begins the names of the notes of a message.
func noteOf(sequence uint64) string { return metaBegun + strconv.FormatUint(sequence, 10) + "." }

// notesOfOthers are the metadata of the durable consumer without notes of settled messages and those of this process.
func (s *session) notesOfOthers(info *jetstream.ConsumerInfo) map[string]string {
	others := make(map[string]string, len(info.Config.Metadata)+1)
	for name, value := range info.Config.Metadata {
		text, is := strings.CutPrefix(name, metaBegun)
		number, process, _ := strings.Cut(text, ".")
		sequence, _ := strconv.ParseUint(number, 10, 64)
		if !is || process != s.run.id && sequence > info.AckFloor.Stream {
			others[name] = value
		}
	}
	return others
}
