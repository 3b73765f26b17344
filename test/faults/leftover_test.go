package faults

import (
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/test/servers"
)

// left lists the keys in Redis that do not expire, except the keys that describe the store itself and the keys of
// parked messages.
func (w *world) left(parked map[string]bool) (keys []string) {
	w.t.Helper()
	for _, server := range append([]*servers.RedisServer{w.redis}, w.masters...) {
		keys = append(keys, w.leftOn(server, parked)...)
	}
	return keys
}

func (w *world) leftOn(server *servers.RedisServer, parked map[string]bool) (keys []string) {
	w.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2})
	defer client.Close()
	const forever = -1
	all := client.Scan(w.t.Context(), 0, "msghandler*", 1000).Iterator()
	for all.Next(w.t.Context()) {
		key := all.Val()
		ttl, err := client.TTL(w.t.Context(), key).Result()
		if err != nil {
			w.t.Fatal(err)
		}
		name := strings.Replace(key, newPrefix+":", "msghandler:", 1)
		if ttl == forever && !ofStore(name) && !needed(name, parked) {
			keys = append(keys, key)
		}
	}
	if err := all.Err(); err != nil {
		w.t.Fatal(err)
	}
	return keys
}

// ofStore says whether a key describes the store itself. The audit trail is bounded by its length and not by time.
func ofStore(key string) bool {
	return key == "msghandler:meta" || strings.HasSuffix(key, "}:pulse") || strings.HasPrefix(key, "msghandler:audit:")
}

// ofProducer matches a key of a producer in a shard, ofMessage a key of a message.
var (
	ofProducer = regexp.MustCompile(`^msghandler:\{\w+\}:(.+):(?:(?:abandoned|dead)(?::created)?|verdicts)$`)
	ofMessage  = regexp.MustCompile(`^msghandler:\{\w+\}:(.+):[mx]:(.+)$`)
)

// needed says whether a key belongs to parked messages.
func needed(key string, parked map[string]bool) bool {
	if len(parked) > 0 && strings.HasSuffix(key, "}:producers") {
		return true
	}
	if m := ofMessage.FindStringSubmatch(key); m != nil {
		return parked[m[1]+"/"+m[2]]
	}
	m := ofProducer.FindStringSubmatch(key)
	for name := range parked {
		if m != nil && strings.HasPrefix(name, m[1]+"/") {
			return true
		}
	}
	return false
}

func TestOnlyTheStoreHasLastingKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"msghandler:meta": true, "msghandler:{00}:pulse": true, "msghandler:audit:changes": true,
		"msghandler:audit:sessions": true, "msghandler:{00}:orders:m:1": false, "msghandler:{00}:audit:m:1": false,
	} {
		if ofStore(key) != want {
			t.Errorf("%s is of the store: %t", key, !want)
		}
	}
}

func TestParkedMessagesKeepOnlyTheirKeys(t *testing.T) {
	parked := map[string]bool{"kept/7": true}
	for key, want := range map[string]bool{
		"msghandler:{00}:producers": true, "msghandler:{00}:kept:m:7": true, "msghandler:{00}:kept:x:7": true,
		"msghandler:{00}:kept:abandoned": true, "msghandler:{01dc}:kept:dead:created": true,
		"msghandler:{00}:kept:verdicts": true, "msghandler:{00}:kept:m:8": false, "msghandler:{00}:kept:pending": false,
		"msghandler:{00}:kept:leases": false, "msghandler:{00}:plain:dead": false,
	} {
		if needed(key, parked) != want {
			t.Errorf("%s is needed: %t", key, !want)
		}
	}
	if needed("msghandler:{00}:producers", nil) {
		t.Error("producers stand there though nothing is set aside")
	}
}
