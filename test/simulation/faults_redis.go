package simulation

import "context"

// redisFaults are those of Redis itself.
var redisFaults = []fault{
	{name: "scripts", chance: 30, start: forgetScripts},
	{name: "loading", chance: 20, start: loadRedis},
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
	w.Redis.refuseWhile(ctx, w, d, func(string) string { return "LOADING Redis is loading the dataset in memory" })
}
