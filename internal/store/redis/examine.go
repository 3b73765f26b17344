package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// Examine diagnoses Redis for operators and writes nothing there. Examine finds the findings of Check, and more: how
// much of the last second a power cut may take, memory that runs out, missing replicas, data of another layout, and
// data rollbacks. Its errors are those of New.
func Examine(ctx context.Context, config Config) ([]Finding, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	where, err := address.ParseRedis(config.URL)
	if err != nil {
		return nil, fmt.Errorf("the redis URL %w", err)
	}
	client := connect(where, config, newLocation(where, config))
	defer func() { _ = client.Close() }() // only reads went through the client
	var mu sync.Mutex
	var all []Finding
	err = eachMaster(ctx, client, func(ctx context.Context, master *redis.Client) error {
		found, err := examineServer(ctx, master, config.MinReplicas)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return err
	})
	f := found{addr: strings.Join(where.Hosts, ","), all: all}
	switch {
	case redis.IsAuthError(err):
		f.because(cause.RedisLogin, "does not let us in: "+err.Error())
		return f.all, nil
	case err != nil:
		return nil, translate(err)
	}
	k := newKeys(config.Prefix, layout{shards: config.shardsOf("", where.Cluster)})
	if well, err := f.writes(ctx, client, k); !well {
		return f.all, translate(err)
	}
	ofData, err := examineData(ctx, client, config, where.Cluster)
	return append(f.all, ofData...), translate(err)
}

// writes runs a script that would delete a missing key. The script changes nothing, and a user who may not run this
// script may not run the coordinator's scripts either. The result says whether the run succeeded.
func (f *found) writes(ctx context.Context, client redis.UniversalClient, k keys) (well bool, err error) {
	err = client.Eval(ctx, `return redis.call('DEL', KEYS[1])`, []string{k.shards[0] + "doctor"}).Err()
	switch {
	case redis.IsPermissionError(err):
		of := cause.RedisPermission
		of.Remedy = strings.ReplaceAll(of.Remedy, "PREFIX", k.prefix)
		f.because(of, "does not let this user run scripts on "+k.prefix+":*: "+err.Error())
	case redis.IsNoReplicasError(err):
		f.because(cause.RedisNoReplicas, "takes no writes, because too few replicas follow it (min-replicas-to-write)")
	case redis.IsReadOnlyError(err), isMisconf(err): // found already, as a replica or a full disk
	default:
		return err == nil, err
	}
	return false, nil
}

func isMisconf(err error) bool { return redis.HasErrorPrefix(err, "MISCONF") }

func examineServer(ctx context.Context, master *redis.Client, minReplicas int) ([]Finding, error) {
	all, err := checkServer(ctx, master, master.Options().Addr)
	if err != nil {
		return nil, err
	}
	info, err := serverInfo(ctx, master, "server", "replication", "persistence", "memory")
	if err != nil {
		return nil, err
	}
	settings, err := serverSettings(ctx, master, info, "appendonly", "appendfsync")
	if err != nil {
		return nil, err
	}
	f := found{addr: master.Options().Addr, all: all}
	f.durability(info, settings)
	if m, told := fullnessOf(f.addr, info); told {
		f.memory(m)
	}
	if version, known := serverVersionOf(info); known {
		f.notes(version)
	}
	if connected, err := strconv.Atoi(info["connected_slaves"]); err == nil && connected < minReplicas {
		f.add("replicas-missing", Refuse, fmt.Sprintf("has %d replicas", connected),
			fmt.Sprintf("redis.min_replicas is %d, so no half message is accepted", minReplicas),
			"start the missing replicas, or lower redis.min_replicas")
	}
	return f.all, nil
}

func (f *found) durability(info, settings map[string]string) {
	for _, status := range []string{"aof_last_write_status", "rdb_last_bgsave_status"} {
		if said := info[status]; said != "" && said != "ok" {
			f.because(cause.RedisDisk, "cannot write to its disk ("+status+" is "+said+")")
			return
		}
	}
	// A server without a version is the embedded one, which has no file to sync.
	if settings["appendfsync"] == "" && info["redis_version"] != "" {
		f.add("unrevealed", Note, "does not reveal appendfsync and save (CONFIG is refused)",
			"whether a power cut or a restart takes accepted half messages is not known",
			"ask your provider, or let the user run CONFIG GET (ACL SETUSER with +config|get)")
	}
	if settings["appendonly"] == "yes" && settings["appendfsync"] != "" && settings["appendfsync"] != "always" {
		f.add("unsynced", Warning, "does not sync its file on every write (appendfsync "+settings["appendfsync"]+")",
			"a power cut may take the last second, and half messages that were accepted in it",
			"set appendfsync always, or delete_business.when: after_ack, or live with it")
	}
}

// examineData looks at the coordinators' own notes about the data.
func examineData(ctx context.Context, client redis.UniversalClient, config Config, cluster bool) ([]Finding, error) {
	meta, err := client.HGetAll(ctx, metaOf(config.Prefix)).Result()
	if err != nil {
		return nil, err
	}
	l := layout{shards: config.shardsOf(meta[shardsField], cluster)}
	f := found{addr: config.Prefix}
	if wrong := misfitOf(meta, l); wrong.name != "" {
		f.add(wrong.name, Refuse, wrong.what, "the coordinator does not start", wrong.remedy)
		return f.all, nil
	}
	return f.all, f.regressions(ctx, client, newKeys(config.Prefix, l))
}

// regressions tells when shards were found to have gone back in time. Messages are suspect after a jump of the clock,
// too, which is no loss.
func (f *found) regressions(ctx context.Context, client redis.UniversalClient, k keys) error {
	var last int64
	shards := 0
	for _, shard := range k.shards {
		at, err := client.Get(ctx, suspectKey(shard)).Int64()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			return err
		}
		if jumped, _ := client.HGet(ctx, shard+pulseName, jumpedField).Int64(); jumped == at {
			continue
		}
		shards++
		last = max(last, at)
	}
	if shards > 0 {
		f.add("went-back", Warning,
			fmt.Sprintf("data rollback detected: %d of %d shards, last noticed at %s", shards, len(k.shards),
				time.UnixMilli(last).UTC().Format(time.RFC3339)),
			"half messages that were accepted shortly before may be gone, and copies of others may be out (they are flagged)",
			"compare what producers committed about that time with what was delivered; see docs/reference/guarantees.md")
	}
	return nil
}
