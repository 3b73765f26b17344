package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/ground/batch"
)

const (
	// FootprintMessages is the number of half messages that are stored to measure the size of one in Redis: so many that
	// other changes in Redis hardly show.
	FootprintMessages = 5000
	// footprintPart is how many of them are in flight at once.
	footprintPart = 500
)

// footprint measures the size of a waiting half message in Redis: some are stored and rolled back. Other clients'
// changes meanwhile count as well. The size is 0 where no single Redis is named.
func (r *run) footprint(ctx context.Context) (float64, error) {
	options, err := redis.ParseURL(r.config.RedisURL)
	if err != nil {
		return 0, nil // none, or more than one server: no figure
	}
	options.Protocol, options.DisableIdentity = 2, true
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }() // the client only read
	before, err := held(ctx, client)
	if err != nil && ctx.Err() == nil {
		return 0, err
	}
	s, ids := r.producers[0], make([]string, FootprintMessages)
	for i := range ids {
		ids[i] = r.tally.id(r.tally.begin(rolledBack))
	}
	stored := inParts(ctx, ids, func(id string) error { return s.half(ctx, id) })
	after, err := held(ctx, client)
	last := context.WithoutCancel(ctx) // an interrupted load leaves no messages either
	ended := inParts(last, ids, func(id string) error { return s.rollback(last, id) })
	if ctx.Err() != nil {
		return 0, ended
	}
	return float64(after-before) / FootprintMessages, errors.Join(stored, err, ended)
}

// inParts calls do for each id, some at once.
func inParts(ctx context.Context, ids []string, do func(id string) error) error {
	one := func(_ context.Context, ids []string) []error { return []error{do(ids[0])} }
	calls := batch.New(batch.Config{Max: 1, Parallel: footprintPart, Waiting: len(ids), Timeout: patience}, one)
	results, err := calls.Do(ctx, ids...)
	return errors.Join(append(results, err)...)
}

// held is how many bytes Redis holds, the buffers of its clients and of its append-only file left out.
func held(ctx context.Context, client *redis.Client) (int64, error) {
	text, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("ask Redis for its memory: %w", err)
	}
	values := map[string]int64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			values[name] = n
		}
	}
	return values["used_memory"] - values["mem_clients_normal"] - values["mem_aof_buffer"], nil
}
