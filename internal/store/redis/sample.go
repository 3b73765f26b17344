package redis

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// pipelineSize is how many commands go to Redis at once. Redis serves other calls between the commands.
	pipelineSize = 200
	// leastPicks is how many messages of a producer are read at least, where there is room for all producers.
	leastPicks = 20
)

// stratum is the messages of one producer in one shard and state: those of an index, or those with cells.
type stratum struct {
	producer, key string
	cells         bool
	count         int64
	// picks is how many messages are to be read, and looked how many were read.
	picks, looked int64
}

// pick is a message to read.
type pick struct {
	listed
	stratum *stratum
}

// Sample implements halfmsg.Inspector. The messages of an index are read at even distances by rank, so the oldest and
// the newest of each producer are among them. Of the cells, which live for seconds, any are read.
func (s *Store) Sample(ctx context.Context, query halfmsg.Query) (sample halfmsg.Sample, err error) {
	begun := time.Now()
	now, err := s.intake.Time(ctx).Result()
	if err != nil {
		return sample, translate(err)
	}
	upTo := now.Add(-query.MinAge)
	strata, err := s.strata(ctx, query, upTo)
	if err != nil {
		return sample, err
	}
	allot(strata, int64(query.Limit))
	picks, err := s.picks(ctx, strata, upTo)
	if err != nil {
		return sample, err
	}
	rand.Shuffle(len(picks), func(i, k int) { //nolint:gosec // a sample that ends early is even, too
		picks[i], picks[k] = picks[k], picks[i]
	})
	picks = oneOfEachFirst(picks)
	var of []*stratum // of each record
	for part := range slices.Chunk(picks, readSlice) {
		if sample.Looked > 0 && query.Patience > 0 && time.Since(begun) > query.Patience {
			break
		}
		if err := s.readPicks(ctx, part, query, func(p pick, r halfmsg.Record) {
			sample.Records, of = append(sample.Records, halfmsg.Sampled{Record: r}), append(of, p.stratum)
		}); err != nil {
			return sample, err
		}
		sample.Looked += int64(len(part))
	}
	for i, t := range of {
		sample.Records[i].Weight = float64(t.count) / float64(t.looked)
	}
	for _, t := range strata {
		sample.Total += t.count
	}
	return sample, nil
}

// oneOfEachFirst moves a message of each stratum to the front, so that a sample that ends early misses no producer.
func oneOfEachFirst(picks []pick) []pick {
	var first, others []pick
	seen := map[*stratum]bool{}
	for _, p := range picks {
		if seen[p.stratum] {
			others = append(others, p)
			continue
		}
		seen[p.stratum] = true
		first = append(first, p)
	}
	return append(first, others...)
}

// readPicks reads messages and yields the matching ones.
func (s *Store) readPicks(
	ctx context.Context, part []pick, query halfmsg.Query, yield func(p pick, r halfmsg.Record),
) error {
	found := make([]listed, len(part))
	for i, p := range part {
		found[i] = p.listed
		p.stratum.looked++
	}
	return s.readBatch(ctx, found, query, func(i int, r halfmsg.Record) { yield(part[i], r) })
}

// strata counts the messages of each producer up to a time of creation. Producers without messages are left out.
func (s *Store) strata(ctx context.Context, query halfmsg.Query, upTo time.Time) ([]*stratum, error) {
	producers, err := s.producers(ctx, query.Producer)
	if err != nil {
		return nil, err
	}
	var all []*stratum
	for i, shard := range s.keys.shards {
		for _, producer := range producers[i] {
			key := shard + producer + ":" + query.State.String()
			all = append(all, &stratum{producer: producer, key: key + createdSuffix})
			if query.State == halfmsg.Pending || query.State == halfmsg.Sendable {
				all = append(all, &stratum{producer: producer, key: key + cellsSuffix, cells: true})
			}
		}
	}
	counts := make([]*redis.IntCmd, len(all))
	err = s.pipelined(ctx, len(all), func(pipe redis.Pipeliner, i int) {
		if t := all[i]; t.cells {
			counts[i] = pipe.HLen(ctx, t.key)
		} else {
			counts[i] = pipe.ZCount(ctx, t.key, "-inf", strconv.FormatInt(upTo.UnixMilli(), 10))
		}
	})
	if err != nil {
		return nil, err
	}
	var present []*stratum
	for i, t := range all {
		if t.count = counts[i].Val(); t.count > 0 {
			present = append(present, t)
		}
	}
	return present, nil
}

// producers lists the producers of each shard, or the one that is asked for.
func (s *Store) producers(ctx context.Context, only string) ([][]string, error) {
	shards := s.keys.shards
	all, found := make([][]string, len(shards)), make([]*redis.StringSliceCmd, len(shards))
	err := s.pipelined(ctx, len(shards), func(pipe redis.Pipeliner, i int) {
		found[i] = pipe.SMembers(ctx, shards[i]+producersKey)
	})
	if err != nil {
		return nil, err
	}
	for i := range shards {
		all[i] = slices.DeleteFunc(found[i].Val(), func(producer string) bool { return only != "" && producer != only })
	}
	return all, nil
}

// pipelined sends n commands in several requests. A key of a wrong type, which the sweeper reports, counts as empty.
func (s *Store) pipelined(ctx context.Context, n int, each func(pipe redis.Pipeliner, i int)) error {
	for from := 0; from < n; from += pipelineSize {
		commands, err := s.intake.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := from; i < min(n, from+pipelineSize); i++ {
				each(pipe, i)
			}
			return nil
		})
		for _, c := range commands {
			if err = c.Err(); err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
				return translate(err)
			}
		}
		if len(commands) == 0 && err != nil {
			return translate(err)
		}
	}
	return nil
}

// allot divides the messages to read among the strata: by their size, and some of each where there is room.
func allot(strata []*stratum, limit int64) {
	var total int64
	for _, t := range strata {
		total += t.count
	}
	if total <= limit {
		for _, t := range strata {
			t.picks = t.count
		}
		return
	}
	least := min(leastPicks, max(1, limit/2/int64(len(strata))))
	slices.SortFunc(strata, func(a, b *stratum) int { return cmp.Compare(b.count, a.count) })
	for _, t := range strata {
		t.picks = min(t.count, max(least, int64(float64(limit)*float64(t.count)/float64(total))), limit)
	}
	if len(strata) > int(limit) { // the largest ones
		for _, t := range strata[limit:] {
			t.picks = 0
		}
	}
}

// picks chooses the messages to read.
func (s *Store) picks(ctx context.Context, strata []*stratum, upTo time.Time) (all []pick, err error) {
	type rank struct {
		of *stratum
		at int64
	}
	var ranks []rank
	for _, t := range strata {
		if t.picks == 0 { // its count stays as it is
			continue
		}
		if t.cells {
			some, err := s.someCells(ctx, t, upTo.UnixMilli())
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
			continue
		}
		for i := range t.picks {
			ranks = append(ranks, rank{t, i * (t.count - 1) / max(1, t.picks-1)})
		}
	}
	found := make([]*redis.ZSliceCmd, len(ranks))
	err = s.pipelined(ctx, len(ranks), func(pipe redis.Pipeliner, i int) {
		found[i] = pipe.ZRangeWithScores(ctx, ranks[i].of.key, ranks[i].at, ranks[i].at)
	})
	if err != nil {
		return nil, err
	}
	for i, r := range ranks {
		for _, z := range found[i].Val() {
			id, _ := z.Member.(string)
			all = append(all, pick{listed{int64(z.Score), halfmsg.Name{Producer: r.of.producer, ID: id}}, r.of})
		}
	}
	return all, nil
}

// someCells picks messages with cells, in the order of Redis's hash table, which is any. The count of the stratum
// becomes the number of those that were created up to a time.
func (s *Store) someCells(ctx context.Context, t *stratum, upTo int64) (some []pick, err error) {
	all := t.count
	for seen, cursor := int64(0), uint64(0); ; {
		var found []string
		if found, cursor, err = s.intake.HScan(ctx, t.key, cursor, "", min(t.picks, pipelineSize)).Result(); err != nil {
			return nil, translate(err)
		}
		for i := 0; i+1 < len(found) && seen < t.picks; i += 2 {
			seen++
			stamp, _, _ := strings.Cut(found[i+1], " ")
			if ms, _ := strconv.ParseInt(stamp, 10, 64); ms <= upTo {
				some = append(some, pick{listed{ms, halfmsg.Name{Producer: t.producer, ID: found[i]}}, t})
			}
		}
		if cursor == 0 || seen >= t.picks {
			t.count = all * int64(len(some)) / max(1, seen)
			return some, nil
		}
	}
}

// Find implements halfmsg.Inspector.
func (s *Store) Find(ctx context.Context, id string, producers []string) (found []halfmsg.Record, err error) {
	shards, err := s.producers(ctx, "")
	if err != nil {
		return nil, err
	}
	producers = slices.Concat(append(shards, producers)...)
	slices.Sort(producers)
	var names []halfmsg.Name
	for _, producer := range slices.Compact(producers) {
		names = append(names, halfmsg.Name{Producer: producer, ID: id})
	}
	records, errs := s.getAll(ctx, names, false, s.pacer.lowPriority(readSlice, lowPriorityRests))
	for i, record := range records {
		switch {
		case errs[i] == nil, isCorrupt(errs[i]):
			found = append(found, record)
		case !isNotFound(errs[i]):
			return nil, fmt.Errorf("find %s: %w", names[i], errs[i])
		}
	}
	return found, nil
}
