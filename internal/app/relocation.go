package app

import (
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// relocationTimeout bounds the look at a new Redis: the configuration is not read again meanwhile.
const relocationTimeout = 10 * time.Second

// relocation examines whether Redis may be at the URL of a configuration from now on. A store that is not open yet is
// opened there.
func (a *App) relocation(store *redisstore.Store, next *config.Config) (r redisstore.Relocation, err error) {
	if store == nil {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(a.life, relocationTimeout)
	defer cancel()
	r, err = store.Relocate(ctx, next.Redis.URL)
	if err != nil {
		return r, fmt.Errorf("redis.url: %w", err)
	}
	if worst := a.refused(r.Findings); len(worst) > 0 {
		return r, fmt.Errorf("redis.url: %w", &UnsafeError{worst})
	}
	return r, nil
}

// relocate goes on at another Redis, if there is one.
func (a *App) relocate(r redisstore.Relocation) {
	r.Take()
	if r.To != "" {
		a.doors.certificates.Forget(cause.Redis.Key, r.From)
		a.logger.Info("Redis has moved: all further commands go to the new address", "old", r.From, "new", r.To)
	}
}
