package redis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"

	"github.com/redis/go-redis/v9"
)

const (
	// movesParallel is how many batches of moves may be in flight to a master at once. More would only make them smaller.
	movesParallel = 1
	// movesMax is how many calls a batch of moves may have.
	movesMax = 64
	// movesWaiting bounds the calls that wait for a master. Callers bound their own messages; see the submit queues and
	// work queues.
	movesWaiting = 1 << 16
	// movesTimeout bounds a batch, at far more than a batch takes that succeeds.
	movesTimeout = 5 * time.Second
)

// The numbers of the scripts for Submits, and for verdicts and ends, in together.
const (
	submitPart = 1
	settlePart = 2
)

// movesReported are the names under which moves are reported: those of the scripts for messages in indexes.
var movesReported = map[int]string{submitPart: "submit", settlePart: "move"}

// moves makes the ordinary moves of paged messages: Submits, verdicts and ends. Calls of all three kinds that come
// while others are in flight leave together, as one request: a request costs as much as several messages.
type moves struct {
	*batch.Group[*call, struct{}]
}

func newMoves(client redis.UniversalClient, sc *script, logger *slog.Logger) moves {
	config := batch.Config{
		Max: movesMax, Parallel: movesParallel, Waiting: movesWaiting, Timeout: movesTimeout,
	}
	lane := func(c *call) string { return laneOf(client, c.shard) }
	return moves{batch.NewInLanes(config, lane, func(ctx context.Context, calls []*call) []struct{} {
		if failure := lifecycle.Recovered(func() { transact(ctx, client, sc, calls) }); failure != nil {
			logger.Error("store batch panicked: its callers repeat the calls", "cause", failure, "stack", string(failure.Stack))
			fail(calls, fmt.Errorf("%w: %w", halfmsg.ErrUncertain, failure))
		}
		return make([]struct{}, len(calls))
	})}
}

// run makes calls and returns them with their replies or errors. The calls given belong to the batch. Where the context
// ends first, the moves may still be made.
func (m moves) run(ctx context.Context, calls []*call) []*call {
	if err := notSent(ctx); err != nil {
		fail(calls, err)
		return calls
	}
	_, err := m.Do(ctx, calls...)
	switch {
	case err == nil:
		return calls
	case errors.Is(err, batch.ErrBusy): // no call was taken
		fail(calls, fmt.Errorf("%w: %w", halfmsg.ErrUnavailable, err))
		return calls
	}
	unanswered := make([]*call, len(calls))
	for i, c := range calls {
		unanswered[i] = &call{items: c.items, messages: c.messages}
	}
	fail(unanswered, fmt.Errorf("%w: %w", halfmsg.ErrUncertain, err))
	return unanswered
}

// makeMoves makes calls of a part of the moves script, and returns them with their replies or errors.
func (s *Store) makeMoves(ctx context.Context, part int, calls []*call) []*call {
	for _, c := range calls {
		c.part = part
	}
	begun := time.Now()
	s.pacer.clock.Fresh()
	calls = s.moves.run(ctx, calls)
	s.config.Ran(movesReported[part], s.scripts.moves.answered(calls), time.Since(begun))
	return calls
}
