package redis_test

import (
	"testing"
	"time"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// A coordinator whose clock is behind must not open the sessions again that another one has ended.
func TestLogoutIsNeverLowered(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Config{URL: servers.Redis(t).URL()})
	if last, err := store.LastLogout(t.Context(), "token:anna"); !last.IsZero() || err != nil {
		t.Errorf("before a logout: %s, %v", last, err)
	}
	now := time.Now().Truncate(time.Millisecond)
	for _, at := range []time.Duration{0, time.Hour, -time.Hour, time.Minute} {
		must.Succeed(t, store.NoteLogout(t.Context(), "token:anna", now.Add(at)))
		want := now
		if at != 0 {
			want = now.Add(time.Hour)
		}
		if last, err := store.LastLogout(t.Context(), "token:anna"); !last.Equal(want) || err != nil {
			t.Errorf("after a logout of %s from now: %s, want %s, %v", at, last, want, err)
		}
	}
}
