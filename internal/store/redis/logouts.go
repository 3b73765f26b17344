package redis

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// longestSession is at least as long as a session lasts.
const longestSession = 12 * time.Hour

// logoutMember holds the time of a logout.
const logoutMember = "at"

// NoteLogout keeps when a person has logged out of the console, for as long as a session may last. The clocks of
// coordinators differ, so an earlier time than the kept one changes nothing. Errors are the store's.
func (s *Store) NoteLogout(ctx context.Context, who string, at time.Time) error {
	key := logoutKey(s.config.Prefix, who)
	_, err := s.loops.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAddArgs(ctx, key, redis.ZAddArgs{
			GT: true, Members: []redis.Z{{Score: float64(at.UnixMilli()), Member: logoutMember}},
		})
		p.PExpire(ctx, key, longestSession)
		return nil
	})
	return translate(err)
}

// LastLogout is when a person last logged out of the console; the zero time where no session can be that old. Errors
// are the store's.
func (s *Store) LastLogout(ctx context.Context, who string) (time.Time, error) {
	ms, err := s.loops.ZScore(ctx, logoutKey(s.config.Prefix, who), logoutMember).Result()
	if err != nil {
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return time.Time{}, translate(err)
	}
	return time.UnixMilli(int64(ms)), nil
}
