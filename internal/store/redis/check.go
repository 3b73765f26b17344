package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Severity says how bad a finding is.
type Severity uint8

const (
	// Note is worth knowing and may be intended. Only Examine finds notes.
	Note Severity = iota + 1
	// Warning is a set-up that weakens a promise in some faults.
	Warning
	// Refuse is a set-up with which Redis loses messages without any fault.
	Refuse
)

// String is "note", "warning" or "refuse".
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Refuse:
		return "refuse"
	default:
		return "warning"
	}
}

// Finding is something about the Redis servers that would break the promises.
type Finding struct {
	// Name identifies the kind of finding, such as redis-evicts. Names never change, because scripts and runbooks use
	// them.
	Name     string
	Severity Severity
	// What is wrong, with the server's address.
	What string
	// Why it matters.
	Why string
	// Remedy is the action to take.
	Remedy string
}

// Check looks at every master for settings that would break the promises. Settings that a server does not reveal, such
// as a managed or an embedded server, count as right.
func (s *Store) Check(ctx context.Context) ([]Finding, error) {
	var mu sync.Mutex
	var all []Finding
	err := eachReachable(ctx, s.intake, func(ctx context.Context, master *redis.Client) error {
		found, err := checkServer(ctx, master, s.location.nameOf(master))
		mu.Lock()
		defer mu.Unlock()
		all = append(all, found...)
		return err
	})
	if err == nil {
		var found []Finding
		found, err = s.checkLayout(ctx)
		all = append(all, found...)
	}
	return all, translate(err)
}

// checkLayout compares the layout of the data with the layout written in Redis. A loss of data may have removed the
// written layout while this store had the layout in memory. Then checkLayout writes the layout again, unless another
// coordinator was first.
func (s *Store) checkLayout(ctx context.Context) ([]Finding, error) {
	got, err := s.writtenLayout(ctx, s.layout)
	if err != nil {
		return nil, err
	}
	if got[layoutField] == layoutVersion && got[shardsField] == strconv.Itoa(s.layout.shards) {
		return nil, nil
	}
	return []Finding{{
		Name: "redis-layout", Severity: Refuse,
		What: fmt.Sprintf("%s says layout %s and %s shards, and this coordinator started with layout %s and %d",
			metaOf(s.config.Prefix), got[layoutField], got[shardsField], layoutVersion, s.layout.shards),
		Why: "coordinators with different layouts do not see each other's messages",
		Remedy: fmt.Sprintf("stop the coordinators that started since Redis lost its data, "+
			"HSET %s layout %s shards %d, start them again, and have producers send once more what those accepted meanwhile",
			metaOf(s.config.Prefix), layoutVersion, s.layout.shards),
	}}, nil
}

func checkServer(ctx context.Context, master *redis.Client, addr string) ([]Finding, error) {
	info, err := serverInfo(ctx, master, "server", "replication", "memory", "persistence")
	if err != nil {
		return nil, err
	}
	settings, err := serverSettings(ctx, master, info, "maxmemory-policy", "appendonly", "save")
	if err != nil {
		return nil, err
	}
	return judgeSettings(addr, info, settings), nil
}

// serverSettings reads the settings that CONFIG reveals, and those that INFO reveals where CONFIG is refused, as by
// managed servers.
func serverSettings(
	ctx context.Context, master *redis.Client, info map[string]string, names ...string,
) (map[string]string, error) {
	settings := map[string]string{}
	if policy := info["maxmemory_policy"]; policy != "" {
		settings["maxmemory-policy"] = policy
	}
	if enabled := info["aof_enabled"]; enabled != "" {
		settings["appendonly"] = map[string]string{"0": "no", "1": "yes"}[enabled]
	}
	for _, name := range names {
		got, err := master.ConfigGet(ctx, name).Result()
		if unknown, err := refused(err); err != nil {
			return nil, err
		} else if !unknown {
			maps.Copy(settings, got)
		}
	}
	return settings, nil
}

// serverInfo reads the lines of sections of INFO that the server reveals.
func serverInfo(ctx context.Context, master *redis.Client, sections ...string) (map[string]string, error) {
	info := map[string]string{}
	for _, section := range sections {
		text, err := master.Info(ctx, section).Result()
		unknown, err := refused(err)
		if err != nil {
			return nil, err
		}
		if unknown {
			continue
		}
		for line := range strings.Lines(text) {
			if key, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
				info[key] = value
			}
		}
	}
	return info, nil
}

// refused says whether a server does not know, or does not allow, the command.
func refused(err error) (bool, error) {
	var fromRedis redis.Error
	if !errors.As(err, &fromRedis) {
		return false, err
	}
	if errors.Is(kindOf(err), halfmsg.ErrUncertain) || strings.HasPrefix(fromRedis.Error(), "NOPERM") {
		return true, nil // Redis refused the command itself
	}
	return false, err
}

// found collects the findings about one server.
type found struct {
	addr string
	all  []Finding
}

func (f *found) add(name string, severity Severity, what, why, remedy string) {
	f.all = append(f.all, Finding{
		Name: "redis-" + name, Severity: severity, What: "Redis " + f.addr + " " + what, Why: why, Remedy: remedy,
	})
}

// because adds a finding with its cause. The consequence and the remedy are those of a call that fails so.
func (f *found) because(of cause.Cause, what string) {
	f.add(strings.TrimPrefix(of.Name, "redis-"), Refuse, what, of.Why, of.Remedy)
}

func judgeSettings(addr string, info, settings map[string]string) []Finding {
	f := found{addr: addr}
	if policy := settings["maxmemory-policy"]; policy != "" && policy != "noeviction" {
		f.add("evicts", Refuse, "evicts keys when it is full (maxmemory-policy "+policy+")",
			"messages that nobody has delivered yet would be thrown away", "set maxmemory-policy noeviction")
	}
	if info["role"] == "slave" {
		f.because(cause.RedisReplica, "is a replica")
	}
	if save, known := settings["save"]; known && save == "" && settings["appendonly"] == "no" {
		f.add("forgets", Warning, "keeps nothing on disk", "a restart forgets every message", "set appendonly yes")
	}
	if version, known := serverVersionOf(info); known {
		f.supported(version)
	}
	return f.all
}
