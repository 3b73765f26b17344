package faults

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// durable makes Redis sync before each answer. While its disk is slow, a Redis that syncs once a second may lose
// acknowledged writes even when only its process is killed; F14 covers this loss.
var durable = options{redis: []string{"--appendfsync", "always"}}

// Faults of Redis that end without the help of an operator.
var redisRows = []row{
	{name: "F13_1s", world: durable, short: true, copies: true, leavesMarkers: true, fault: killRedis(time.Second)},
	{name: "F13_5s", world: durable, copies: true, leavesMarkers: true, fault: killRedis(5 * time.Second)},
	{name: "F13_20s", world: durable, copies: true, leavesMarkers: true, fault: killRedis(20 * time.Second)},
	{name: "F18", copies: true, fault: flushScripts},
	{name: "F18_busy", copies: true, fault: busyScripts},
}

// killRedis is a fault of a given duration.
func killRedis(away time.Duration) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		pause(ctx, time.Second)
		w.ledger.Fault("kill -9 of Redis")
		w.redis.Kill()
		back := time.Now().Add(away)
		w.unready("redis")
		wait(time.Until(back))
		w.redis.Start()
		w.ledger.Fault("Redis is back")
		w.allReady()
	}
}

// flushScripts makes Redis forget the scripts, and now and then its clients.
func flushScripts(ctx context.Context, w *world, _ *rand.Rand) {
	killed := 0
	for n := 0; ctx.Err() == nil; n++ {
		w.redis.CLI("SCRIPT", "FLUSH")
		if n%5 == 0 {
			count, err := strconv.Atoi(w.redis.CLI("CLIENT", "KILL", "TYPE", "normal"))
			if err != nil {
				w.t.Fatal(err)
			}
			killed += count
			w.ledger.Fault("the connections to Redis are killed")
		}
		pause(ctx, 200*time.Millisecond)
	}
	w.felt("NOSCRIPT")
	if killed == 0 {
		w.t.Error("no connection was there to be killed")
	}
}

// busyScripts has a foreign script take all of Redis' time, which then refuses every other call.
func busyScripts(ctx context.Context, w *world, _ *rand.Rand) {
	w.redis.CLI("CONFIG", "SET", "busy-reply-threshold", "100")
	stranger := redis.NewClient(&redis.Options{Addr: w.redis.Addr, ReadTimeout: -1, MaxRetries: -1})
	defer stranger.Close()
	for ctx.Err() == nil {
		w.ledger.Fault("a script that does not end")
		ended := make(chan error, 1)
		go func() { ended <- stranger.Eval(w.t.Context(), "while true do end", nil).Err() }()
		w.unready("BUSY")
		wait(time.Second)
		w.redis.CLI("SCRIPT", "KILL")
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed by user") {
			w.t.Fatalf("the script ended with %v", err)
		}
		w.allReady()
		w.ledger.Fault("the script is killed")
		pause(ctx, 500*time.Millisecond)
	}
	w.felt("BUSY")
}

// felt demands that Redis, since its start, has answered a client with an error of that code.
func (w *world) felt(code string) {
	w.t.Helper()
	stats := w.redis.CLI("INFO", "errorstats")
	if !strings.Contains(stats, "errorstat_"+code+":") {
		w.t.Errorf("no client got the error %s:\n%s", code, stats)
	}
}
