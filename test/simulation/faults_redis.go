package simulation

import (
	"context"
	"strings"
	"time"
)

// redisFaults are faults of Redis itself.
var redisFaults = []fault{
	{name: "scripts", chance: 25, start: forgetScripts},
	{name: "loading", chance: 20, start: loadRedis},
	{name: "full", chance: 20, start: fillRedis},
	{name: "power cut", chance: 15, start: cutPower(2 * time.Second), excuse: excuse{markers: true, forgets: true}},
	{name: "failover", chance: 15, start: cutPower(10 * time.Second), excuse: excuse{markers: true, forgets: true}},
	{name: "clock", chance: 15, start: stepClock},
}

// forgetScripts makes Redis forget its scripts, as a restart does.
func forgetScripts(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		w.Ledger.Fault("Redis forgets its scripts")
		w.Redis.forgetScripts()
	})
}

// loadRedis has Redis answer that it loads its data, as after a restart.
func loadRedis(ctx context.Context, w *World, d draws) {
	w.Redis.refuseWhile(ctx, w, d, func(string, []string) string {
		return "LOADING Redis is loading the dataset in memory"
	})
}

// fillRedis has Redis answer that its memory is full: to scripts without the flag allow-oom, which it then does not
// begin.
func fillRedis(ctx context.Context, w *World, d draws) {
	w.Redis.refuseWhile(ctx, w, d, func(command string, arguments []string) string {
		const oom = "OOM command not allowed when used memory > 'maxmemory'."
		script := ""
		switch command {
		case "EVAL":
			script = arguments[0]
		case "EVALSHA":
			script = w.Redis.scriptOf(arguments[0])
		}
		if script != "" {
			flags, _, _ := strings.Cut(script, "\n")
			if !strings.Contains(flags, "allow-oom") && !strings.Contains(flags, "no-writes") {
				return oom
			}
		}
		return ""
	})
}

// leastLost is long enough for a coordinator to have counted since: a shorter loss leaves no mark.
const leastLost = 600 * time.Millisecond

// cutPower returns a fault in which Redis loses what it has written in the last time, at most so much: a power cut
// without fsync, or a failover to a replica that lags.
func cutPower(most time.Duration) func(context.Context, *World, draws) {
	return func(ctx context.Context, w *World, d draws) {
		w.repeat(ctx, d, func() {
			from := time.Now()
			earlier, err := w.Redis.copyData()
			if err != nil {
				w.report("Redis cannot be copied: %v", err)
				return
			}
			_ = sleep(ctx, d.within("lost", leastLost, most))
			w.Ledger.Fault("Redis forgets what it has written since " + from.Format("15:04:05.000"))
			w.note("Redis forgets what it has written since %v", from.Sub(w.log.begun))
			counts := w.Redis.counts()
			if err := w.Redis.putBack(earlier); err != nil {
				w.report("Redis cannot be put back: %v", err)
			}
			w.noteRegression(counts)
			w.Redis.host.Cut(func(*Conn) bool { return true })
			w.faulty.forget(from)
			w.checking.forget()
			w.acts.forget(from)
		})
	}
}

// lateAnswer is how long the answer of a Redis that is gone may take to its producer: connections are slow at times.
const lateAnswer = 15 * time.Second

// forget notes that the writes since a time are forgotten.
func (f *faulty) forget(since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = append(f.forgotten, [2]time.Time{since, time.Now()})
}

// isForgotten says that Redis may have lost a message that was accepted at a time: its producer was answered while
// Redis lost its writes, or soon after, and Redis has not stored the message at another time.
func (w *World) isForgotten(key string, accepted time.Time) bool {
	stored := w.checking.storedAt(key)
	return w.faulty.forgot(accepted, lateAnswer) && (stored.IsZero() || w.faulty.forgot(stored, 0))
}

// forgot says whether a time is one whose writes Redis has lost, or at most so much later.
func (f *faulty) forgot(at time.Time, late time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, span := range f.forgotten {
		if !at.Before(span[0]) && !at.After(span[1].Add(late)) {
			return true
		}
	}
	return false
}

// clockTick is how often a clock that was stepped goes on.
const clockTick = 20 * time.Millisecond

// stepClock steps Redis's clock forward or back for a while.
func stepClock(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		by := d.within("forward", 0, 10*time.Minute)
		if d.intn("back", 2) == 0 {
			by = -d.within("backward", 0, time.Minute)
		}
		w.Ledger.Fault("Redis's clock steps by " + by.String())
		w.note("Redis's clock steps by %v", by)
		for end := time.Now().Add(d.within("length", time.Second, 30*time.Second)); time.Now().Before(end); {
			w.setRedisTime(time.Now().Add(by))
			if sleep(ctx, clockTick) != nil {
				break
			}
		}
		w.setRedisTime(time.Time{})
	})
}
