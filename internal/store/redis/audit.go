package redis

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/audit"
)

var _ audit.Store = (*Store)(nil)

// auditText is the field of an entry with the record.
const auditText = "record"

// AppendAudit implements audit.Store. Errors are the store's.
func (s *Store) AppendAudit(
	ctx context.Context, stream audit.Stream, texts []string, most int,
) (stored int, err error) {
	key := auditKey(s.config.Prefix, stream)
	added, err := s.loops.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		addTexts(ctx, pipe, key, texts, most)
		return nil
	})
	for _, one := range added {
		if one.Err() != nil {
			return stored, translate(one.Err())
		}
		stored++
	}
	return stored, translate(err)
}

// addTexts adds texts to a stream that keeps about so many.
func addTexts(ctx context.Context, pipe redis.Pipeliner, key string, texts []string, most int) {
	for _, text := range texts {
		pipe.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: int64(most), Approx: true, Values: []string{auditText, text}})
	}
}

// ReadAudit implements audit.Store. Errors are the store's.
func (s *Store) ReadAudit(ctx context.Context, r audit.Reading) ([]audit.Entry, error) {
	from, to := "+", "-"
	if r.Before != "" {
		from = "(" + r.Before
	}
	if !r.Since.IsZero() {
		to = strconv.FormatInt(r.Since.UnixMilli(), 10)
	}
	read, err := s.loops.XRevRangeN(ctx, auditKey(s.config.Prefix, r.Stream), from, to, int64(r.Count)).Result()
	if err != nil {
		return nil, translate(err)
	}
	entries := make([]audit.Entry, len(read))
	for i, m := range read {
		entries[i].ID = m.ID
		entries[i].Text, _ = m.Values[auditText].(string)
	}
	return entries, nil
}
