package redis

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// longestSession is the longest http.session_age.
const longestSession = 12 * time.Hour

// NoteLogout keeps when a person has logged out of the console, for as long as a session may last. Errors are the
// store's.
func (s *Store) NoteLogout(ctx context.Context, who string, at time.Time) error {
	return translate(s.loops.Set(ctx, logoutKey(s.config.Prefix, who), at.UnixMicro(), longestSession).Err())
}

// LastLogout is when a person last logged out of the console; the zero time where no session can be that old. Errors
// are the store's.
func (s *Store) LastLogout(ctx context.Context, who string) (time.Time, error) {
	text, err := s.loops.Get(ctx, logoutKey(s.config.Prefix, who)).Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}, nil
	}
	micros, parseErr := strconv.ParseInt(text, 10, 64)
	if err = translate(err); err == nil {
		err = parseErr
	}
	return time.UnixMicro(micros), err
}
