package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/natsconn"
)

// No process lives to see a message fail that ends the processes which handle it, and JetStream counts deliveries only,
// also those that processes gave back when they stopped. So a process notes in the metadata of the durable consumer
// that it handles a message which was delivered far more often than allowed. The process takes the note back when the
// message goes back.

// metaBegun begins the name of such a note. The sequence of the message in the stream follows.
const metaBegun = "msghandler-begun."

const (
	// farMore is how many times as often as allowed a message must be delivered to get a note. leastFarMore bounds the
	// number from below.
	farMore, leastFarMore = 4, 20
	// mostBegun is how many processes may have begun a message and told nothing before it becomes a dead letter.
	mostBegun = 5
)

// begin notes that this process handles a message that was delivered far too often, and rejects a message that ends the
// processes which handle it.
func (s *session) begin(t *task) error {
	limit, delivered := s.run.MaxDeliveries, int(t.meta.NumDelivered) //nolint:gosec // few
	count := s.run.failures.unexplained(t.meta.Sequence.Stream, delivered)
	if limit == 0 || s.run.failures.isNoted(t.meta.Sequence.Stream) || count <= max(farMore*limit, leastFarMore) {
		return nil
	}
	times, err := s.noteBegun(t, 1)
	switch {
	case errors.Is(err, natsconn.ErrForbidden):
		times = mostBegun + 1 // without notes the deliveries decide
	case err != nil:
		return consumer.Transient(fmt.Errorf("note that the handling begins: %w", err))
	}
	if times <= mostBegun {
		s.run.failures.setNoted(t.meta.Sequence.Stream, true)
		return nil
	}
	return consumer.Reject(fmt.Errorf("delivered %d times, and no process told how its handling ended: "+
		"does the handler end its process", count))
}

// takeBack takes the note of a message back that goes back to the server.
func (s *session) takeBack(t *task) {
	if s.run.failures.isNoted(t.meta.Sequence.Stream) {
		s.run.failures.setNoted(t.meta.Sequence.Stream, false)
		_, _ = s.noteBegun(t, -1) // the note of a process more does no harm
	}
}

// noteBegun changes the note of a message by a number of processes, and returns what the note says then.
func (s *session) noteBegun(t *task, by int) (times int, err error) {
	s.run.noting.Lock()
	defer s.run.noting.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), ioTimeout)
	defer cancel()
	info, err := s.info(ctx, s.durable)
	if err != nil {
		return 0, err
	}
	config := info.Config
	config.Metadata = openNotes(info)
	name := metaBegun + strconv.FormatUint(t.meta.Sequence.Stream, 10)
	times = deadletter.Count(config.Metadata[name]) + by
	if config.Metadata[name] = strconv.Itoa(times); times <= 0 {
		delete(config.Metadata, name)
	}
	err = s.refusals.Ask(ctx, s.run.createSubject(), func(ctx context.Context) error {
		_, err := s.js.UpdateConsumer(ctx, s.run.Stream, config)
		return err
	})
	return times, err
}

// openNotes are the metadata of the durable consumer without the notes of settled messages.
func openNotes(info *jetstream.ConsumerInfo) map[string]string {
	open := make(map[string]string, len(info.Config.Metadata)+1)
	for name, value := range info.Config.Metadata {
		text, is := strings.CutPrefix(name, metaBegun)
		if sequence, _ := strconv.ParseUint(text, 10, 64); !is || sequence > info.AckFloor.Stream {
			open[name] = value
		}
	}
	return open
}
