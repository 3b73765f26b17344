package redis_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// fixed gives every producer the same quota.
func fixed(quota int) func(string) int { return func(string) int { return quota } }

// TestEachProducerHasItsQuota has three producers in one batch, in data with several shards and in one.
func TestEachProducerHasItsQuota(t *testing.T) {
	t.Parallel()
	quotas := map[string]int{"few": 4, "none": 0, "more": 12}
	quotaOf := func(producer string) int { return quotas[producer] }
	for _, indexed := range []bool{false, true} {
		store, _, server := fresh(t, storing(indexed, redisstore.Config{Quota: quotaOf}))
		other := open(t, storing(indexed, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Quota: quotaOf}))
		stored := map[string]int{}
		for turn, s := range []*redisstore.Store{store, other} {
			var messages []halfmsg.Message
			for i := range 10 {
				for producer := range quotas {
					m := half(fmt.Sprintf("%d-%d", turn, i))
					m.Producer = producer
					messages = append(messages, m)
				}
			}
			for i, r := range s.Create(t.Context(), messages) {
				if r.Err == nil {
					stored[messages[i].Producer]++
				}
			}
		}
		if stored["few"] != 4 || stored["more"] != 12 || stored["none"] != 20 {
			t.Errorf("indexed %t: two coordinators stored %v for the quotas %v, 0 for none", indexed, stored, quotas)
		}
	}
}

// TestWeighCountsBytesOfUnfinishedMessages has messages in pages and in indexes, and a finished one.
func TestWeighCountsBytesOfUnfinishedMessages(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 4})
	var ids []halfmsg.Name
	for i := range 300 {
		m := later(fmt.Sprint(i))
		m.Body = make([]byte, 100) // too small to be packed
		create(t, store, m)
		ids = append(ids, m.Name)
	}
	settle(t, store, halfmsg.EventUnknown, 0, submit(t, store, ids[:100]...)...) // in an index
	if r := store.Rollback(t.Context(), ids[:1])[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	want := recordBytes(t, client)
	got, err := store.UnfinishedBytes(t.Context(), []string{"nobody", ids[0].Producer})
	if err != nil || got[0] != 0 || got[1] != want {
		t.Errorf("weighed %v, %v; the records have %d bytes", got, err, want)
	}
}

// TestWeighEstimatesOfManyMessages has more messages in a state than are looked at. Their records differ by two bytes.
func TestWeighEstimatesOfManyMessages(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	messages, _ := numbered(1000, 100)
	create(t, store, messages...)
	want := recordBytes(t, client)
	got, err := store.UnfinishedBytes(t.Context(), []string{messages[0].Producer})
	if err != nil || got[0] < want*99/100 || got[0] > want*101/100 {
		t.Errorf("weighed %v, %v; the records have %d bytes", got, err, want)
	}
}

// recordBytes is the size of all records in Redis that are no receipts.
func recordBytes(t *testing.T, client *redis.Client) (bytes int64) {
	t.Helper()
	for _, key := range client.Keys(t.Context(), "*:m:*").Val() {
		if client.TTL(t.Context(), key).Val() < 0 {
			bytes += client.StrLen(t.Context(), key).Val()
		}
	}
	return bytes
}
