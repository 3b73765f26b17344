package app

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/server/policy"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const (
	// weighSchedule is how often the bytes of producers with a limit are counted in Redis.
	weighSchedule = "@every 1s"
	// lookInterval is how often the file of the configuration is looked at. A changed file is used once two looks have
	// found the same content: it may be written in pieces.
	lookInterval = time.Second
)

// reloader holds the values of the configuration that change without a restart.
type reloader struct {
	using    atomic.Pointer[config.Config]
	policies *policy.Book
	// followed are the values of files with secrets, by key.
	followed map[string]func() string

	mu sync.Mutex
	// source is nil where the configuration is never read again.
	source *config.Current
	// described is the configuration of source for other coordinators.
	described peers.Configuration
	hangup    <-chan struct{}
	// failed is why the last reading was not used; nil otherwise. pending are changed keys that wait for a restart.
	failed  error
	pending []string
}

// config is the configuration of now.
func (r *reloader) config() *config.Config { return r.using.Load() }

// current is the configuration of now with its sources; nil where there is none.
func (r *reloader) current() *config.Current {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.source
}

// shared is the configuration of now for other coordinators.
func (r *reloader) shared() peers.Configuration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.described
}

// from makes the source of the configuration that is in use. The caller holds the lock, or is the only one.
func (r *reloader) from(source *config.Current) {
	r.source = source
	if source != nil {
		r.described = peers.NewConfiguration(source.Shared())
	}
}

// state names the keys that wait for a restart. The error is why the last reading was not used.
func (r *reloader) state() (pending []string, failed error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending, r.failed
}

func (a *App) openReloader(deps Deps) {
	a.reloader.from(deps.Configuration)
	a.reloader.hangup = deps.Reload
	a.reloader.policies, a.reloader.followed = policy.NewBook(), map[string]func() string{}
	a.use(&a.settings)
	a.metrics.ConfigRead(nil)
}

// use puts the values that need no restart into use.
func (a *App) use(c *config.Config) {
	a.reloader.using.Store(c)
	set := policy.Set{Named: map[string]policy.Rules{}, Others: policyRules(c, "")}
	for name := range c.Producers {
		set.Named[name] = policyRules(c, name)
	}
	a.reloader.policies.Use(set)
}

// policyRules are the rules of a producer; of the empty name, those of producers without settings of their own.
func policyRules(c *config.Config, producer string) policy.Rules {
	p := c.PolicyOf(producer)
	r := policy.Rules{
		Targets: p.Targets, Brokers: p.Brokers, Exchanges: p.Exchanges, RoutingKeys: p.RoutingKeys,
		MaxBytes: int64(p.MaxUnfinishedBytes), CallsPerSecond: p.CallsPerSecond,
	}
	if p.MaxBody < c.Limits.Body { // limits.body holds for all anyway
		r.MaxBody = int(p.MaxBody)
	}
	return r
}

// quota is how many unfinished messages a producer may have.
func (a *App) quota(producer string) int { return a.reloader.config().PolicyOf(producer).MaxUnfinished }

// watchConfiguration reads the configuration again when its file or that of redis.url has changed, and when it is asked
// to. A link that leads to another file, as in Kubernetes, counts as a change.
func (a *App) watchConfiguration() {
	if a.reloader.source == nil {
		return
	}
	content := func() string {
		return contentOf(a.reloader.current().File(), a.reloader.config().SecretFile("redis.url"))
	}
	a.serve("configuration", func() error {
		ticks := time.NewTicker(lookInterval)
		defer ticks.Stop()
		used := content()
		for last := used; ; {
			select {
			case <-a.life.Done():
				return nil
			case <-a.reloader.hangup:
				used = content()
				a.reload("a signal")
			case <-ticks.C:
				now := content()
				if now != used && now == last {
					used = now
					a.reload("a change of its file")
				}
				last = now
			}
		}
	})
}

// contentOf is the content of files, or why one cannot be read.
func contentOf(files ...string) (all string) {
	for _, file := range files {
		if file == "" {
			continue
		}
		content, err := os.ReadFile(file) //nolint:gosec // the path is the operator's own
		if err != nil {
			return "cannot be read: " + err.Error()
		}
		all += string(content) + "\x00"
	}
	return all
}

// reload reads the configuration again, and uses the new values that need no restart: all of them or none. Where Redis
// has been opened meanwhile, at the URL of before maybe, it does so once more.
func (a *App) reload(why string) {
	for a.reloadOnce(why) {
		why = "the opening of Redis"
	}
}

func (a *App) reloadOnce(why string) (again bool) {
	store := a.store.Load()
	next, changes, move, err := a.readConfiguration(store)
	if err == nil {
		err = a.callbacks.Allow(next.Config.Callbacks.Allow, next.Config.Callbacks.Networks)
	}
	if err == nil {
		err = a.callers.authenticator.Use(rulesOf(&next.Config)) // the globs are checked: it does not fail any more
	}
	a.metrics.ConfigRead(err)
	a.finishReload(why, next, changes, move, err)
	return a.store.Load() != store && err == nil
}

// readConfiguration reads the sources again, and examines whether Redis may be where they say. A URL of Redis that
// needs a restart does not hold back other keys.
func (a *App) readConfiguration(
	store *redisstore.Store,
) (next *config.Current, changes []config.Change, move redisstore.Relocation, err error) {
	if next, changes, err = a.reloader.source.Reload(); err != nil {
		return nil, nil, move, err
	}
	move, err = a.relocation(store, &next.Config)
	if errors.Is(err, redisstore.ErrNeedsRestart) {
		next, changes, err = a.reloader.source.Reload("redis.url")
	}
	return next, changes, move, err
}

// finishReload uses a configuration that was read again, or tells why not.
func (a *App) finishReload(
	why string, next *config.Current, changes []config.Change, move redisstore.Relocation, err error,
) {
	r := &a.reloader
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed = err; err != nil {
		a.recordReload(why, nil, err)
		a.logger.Error("configuration read again and refused: the earlier values stay in use; fix the file", "after", why,
			"cause", err)
		return
	}
	a.relocate(move)
	a.use(&next.Config)
	r.from(next)
	r.pending = nil
	for _, c := range changes {
		if c.Restart {
			r.pending = append(r.pending, c.Key)
		}
	}
	a.noteReload(why, changes)
	a.recordReload(why, changes, nil)
}

// noteReload tells of a configuration that was read again, with each change.
func (a *App) noteReload(why string, changes []config.Change) {
	used := 0
	for _, c := range changes {
		if c.Restart {
			a.logger.Warn("a changed key needs a restart: the earlier value stays in use; restart the coordinator",
				"key", c.Key, "old", c.Old, "new", c.New)
			continue
		}
		used++
		a.logger.Info("a key of the configuration has changed: the new value is in use",
			"key", c.Key, "old", c.Old, "new", c.New)
	}
	if len(changes) == 0 {
		a.logger.Info("configuration read again: nothing has changed", "after", why)
		return
	}
	a.logger.Info("configuration read again", "after", why, "changes", used, "need_restart", len(changes)-used)
}

// reload reports a configuration that cannot be used, and keys that wait for a restart.
func (f *findings) reload(r *reloader) {
	pending, failed := r.state()
	if failed != nil {
		f.add(trouble, "config-refused", fmt.Sprintf("the configuration was read again and refused: %v", failed),
			"the earlier values stay in use, and the coordinator may not start again",
			"fix what the error names; the file is read again when it changes, and on SIGHUP")
	}
	if len(pending) > 0 {
		f.add(warning, "config-restart", "changed keys wait for a restart: "+strings.Join(pending, ", "),
			"the earlier values stay in use", "restart the coordinators, one at a time")
	}
}
