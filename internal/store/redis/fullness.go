package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/cause"
)

// From these shares of maxmemory on Redis counts as nearly full, and as full: deliveries free a little again and again.
const (
	nearlyFull = 0.8
	full       = 0.99
)

// Fullness is how full a master is, in bytes.
type Fullness struct {
	Addr string
	// Used is what counts against the limit, and Limit is maxmemory; 0 without a limit.
	Used, Limit int64
}

// Fullness reads how full each master is. A server that does not tell is left out.
func (s *Store) Fullness(ctx context.Context) ([]Fullness, error) {
	var mu sync.Mutex
	var all []Fullness
	err := eachReachable(ctx, s.intake, func(ctx context.Context, master *redis.Client) error {
		info, err := serverInfo(ctx, master, "memory")
		if err != nil {
			return err
		}
		if m, told := fullnessOf(s.location.nameOf(master), info); told {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m)
		}
		return nil
	})
	return all, translate(err)
}

// fullnessOf reads INFO memory. The buffers of replicas and of the append-only file do not count against the limit.
func fullnessOf(addr string, info map[string]string) (m Fullness, told bool) {
	used, err := strconv.ParseInt(info["used_memory"], 10, 64)
	if err != nil {
		return m, false
	}
	uncounted, _ := strconv.ParseInt(info["mem_not_counted_for_evict"], 10, 64)
	limit, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
	return Fullness{Addr: addr, Used: used - uncounted, Limit: limit}, true
}

// FullnessFindings are the findings about masters that are full, or nearly full.
func FullnessFindings(masters []Fullness) []Finding {
	var all []Finding
	for _, m := range masters {
		f := found{addr: m.Addr}
		f.memory(m)
		all = append(all, f.all...)
	}
	return all
}

func (f *found) memory(m Fullness) {
	share := float64(m.Used) / float64(m.Limit)
	switch uses := fmt.Sprintf("uses %.0f %% of maxmemory", 100*share); {
	case m.Limit == 0:
	case share > full:
		f.because(cause.RedisFull, uses)
	case share > nearlyFull:
		f.add("memory", Warning, uses, "when it is full, half messages are refused with RESOURCE_EXHAUSTED",
			"raise maxmemory, or let the backlog shrink")
	}
}
