package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// redisPauses are the waits between attempts to open Redis.
var redisPauses = backoff.Exponential(250*time.Millisecond, 5*time.Second)

// openStore opens the store and waits while Redis is unavailable. Meanwhile clients are refused.
func (a *App) openStore(ctx context.Context) (*redisstore.Store, error) {
	stop := rejectUntilReady(a.doors.api)
	defer stop()
	store, err := a.reachStore(ctx)
	if err != nil {
		return nil, err
	}
	a.closeWith(closer{name: "redis", close: func(ctx context.Context) error {
		a.leavePeers(ctx, store)
		return store.Close()
	}})
	a.connectAudit(store)
	a.noteSettings(nil)
	a.checks.set(checkRedis, store.Ping)
	return store, errors.Join(a.watchPeers(ctx, store), a.watchStore(store), a.watchFullness(store), a.watchParked(store),
		a.watchSlowness())
}

// reachStore opens the store, trying again while Redis cannot be reached, and where the configuration has changed
// meanwhile. Problems that time does not fix, such as a wrong number of shards or unsafe settings, are errors at once.
func (a *App) reachStore(ctx context.Context) (*redisstore.Store, error) {
	handshake := a.doors.certificates.Servers(cause.Redis.Key, expiry.DialTLS).Handshake
	for failures := 0; ; failures++ {
		url := a.reloader.config().Redis.URL
		store, err := a.tryStore(ctx, url, handshake)
		if err == nil {
			// A reload either finds the store and moves it, or has the new URL in use before this look at it.
			if a.store.Store(store); a.reloader.config().Redis.URL != url {
				a.store.Store(nil)
				_ = store.Close() // nothing went through the store
				continue
			}
			if failures > 0 {
				a.logger.Info("Redis is there")
			}
			return store, nil
		}
		if !errors.Is(err, halfmsg.ErrUnavailable) && !errors.Is(err, halfmsg.ErrUncertain) {
			return nil, err
		}
		a.checks.set(checkRedis, func(context.Context) error { return err })
		pause := redisPauses.Delay(failures)
		a.logger.Warn("Redis cannot be reached; the coordinator waits for Redis, and is not ready", "cause", err,
			"retry_in_ms", pause.Milliseconds())
		if err := backoff.Sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// tryStore opens the store and judges the settings of its servers.
func (a *App) tryStore(
	ctx context.Context, url string, handshake redisstore.Handshakes,
) (*redisstore.Store, error) {
	store, err := redisstore.New(ctx, redisstore.Config{
		URL:       url,
		Prefix:    a.settings.Redis.Prefix,
		Shards:    a.settings.Redis.Shards,
		Brokers:   a.settings.BrokerNames(),
		Instance:  a.process.instance,
		Retention: a.settings.Done.Retention,
		Archive: redisstore.Archive{
			Retention: a.settings.Archive.Retention, MaxMessages: a.settings.Archive.MaxMessages,
			MaxBody: int(a.settings.Archive.MaxBody),
		},
		LongestWait: longestWait(&a.settings),
		MinReplicas: a.settings.Redis.MinReplicas,
		Quota:       a.quota,
		HeldPerKey:  a.settings.Limits.HeldPerKey,
		Ran:         a.metrics.ScriptRun,
		Present:     a.redisAddress(),
		Dial:        a.process.network.Dial,
		Handshake:   handshake,
		Logger:      a.logger,
	})
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if err := a.judgeSettings(ctx, store); err != nil {
		_ = store.Close() // the cause is returned
		return nil, err
	}
	return store, nil
}

// longestWait is the longest backoff or lease of a message.
func longestWait(c *config.Config) time.Duration {
	return slices.Max(slices.Concat(c.Confirm.Backoff, c.Send.Backoff, []time.Duration{c.Confirm.Lease, c.Send.Lease}))
}

// UnsafeError says that settings of Redis break the promises.
type UnsafeError struct {
	Findings []redisstore.Finding
}

// Error lists the findings with their remedies.
func (e *UnsafeError) Error() string {
	text := "settings of redis break the promises"
	for _, f := range e.Findings {
		text += "; " + f.What + ": " + f.Why + "; " + f.Remedy
	}
	return text + " (redis.allow_unsafe: true starts anyway)"
}

// Cause is the first finding: its remedy is of the setting itself.
func (e *UnsafeError) Cause() cause.Cause {
	first := e.Findings[0]
	return cause.Cause{Name: first.Name, Why: first.Why, Remedy: first.Remedy}
}

// judgeSettings logs findings about Redis' settings, and refuses the start when a setting breaks the promises.
func (a *App) judgeSettings(ctx context.Context, store *redisstore.Store) error {
	findings, err := store.Check(ctx)
	if err != nil {
		return fmt.Errorf("redis: its settings cannot be read: %w", err)
	}
	a.countFindings(findings)
	for _, f := range findings {
		a.logger.Warn("finding about Redis: "+f.What, "consequence", f.Why, "remedy", f.Remedy,
			"finding_severity", f.Severity.String())
	}
	if worst := a.refused(findings); len(worst) > 0 {
		return &UnsafeError{worst}
	}
	return nil
}

// refused are the findings with which a coordinator does not start: settings that break the promises, without
// redis.allow_unsafe.
func (a *App) refused(findings []redisstore.Finding) []redisstore.Finding {
	if a.settings.Redis.AllowUnsafe {
		return nil
	}
	return breaking(findings)
}

func breaking(findings []redisstore.Finding) []redisstore.Finding {
	var worst []redisstore.Finding
	for _, f := range findings {
		if f.Severity == redisstore.Refuse {
			worst = append(worst, f)
		}
	}
	return worst
}

// countFindings sets the metrics to the latest findings.
func (a *App) countFindings(findings []redisstore.Finding) {
	worst, refused := len(breaking(findings)), len(a.refused(findings))
	a.metrics.Found(len(findings)-worst, refused, worst-refused)
}

// noteSettings sets the readiness check to the latest findings.
func (a *App) noteSettings(findings []redisstore.Finding) {
	worst := a.refused(findings)
	a.checks.set(checkSettings, func(context.Context) error {
		if len(worst) > 0 {
			return &UnsafeError{worst}
		}
		return nil
	})
}
