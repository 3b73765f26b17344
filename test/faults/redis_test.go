package faults

import (
	"context"
	"math/rand/v2"
	"time"
)

// What happens to Redis.
var redisRows = []row{
	{name: "F13_1s", short: true, copies: true, litters: true, fault: killRedis(time.Second)},
	{name: "F13_5s", copies: true, litters: true, fault: killRedis(5 * time.Second)},
	{name: "F13_20s", copies: true, litters: true, fault: killRedis(20 * time.Second)},
	{name: "F18", copies: true, fault: flushScripts},
}

// killRedis is a fault that lasts so long.
func killRedis(away time.Duration) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		pause(ctx, time.Second)
		w.ledger.Fault("kill -9 of Redis")
		w.redis.Kill()
		wait(away)
		w.redis.Start()
		w.ledger.Fault("Redis is back")
		for _, c := range w.coordinators {
			w.ready(c)
		}
	}
}

func flushScripts(ctx context.Context, w *world, _ *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		w.redis.CLI("SCRIPT", "FLUSH")
		if n%5 == 0 {
			w.redis.CLI("CLIENT", "KILL", "TYPE", "normal")
		}
		pause(ctx, 200*time.Millisecond)
	}
}
