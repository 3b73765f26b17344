package redis

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// onRedis is a store on a Redis of its own.
func onRedis(t *testing.T, shards int) *Store {
	t.Helper()
	s, err := New(t.Context(), Config{
		URL: servers.Redis(t).URL(), Shards: shards, Logger: slog.New(slog.DiscardHandler),
	}.WithDefaults())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fill stores messages.
func fill(t *testing.T, s *Store, messages []halfmsg.Message) {
	t.Helper()
	for part := range slices.Chunk(messages, 100) {
		for _, r := range s.Create(t.Context(), part) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
}

// filled makes a store with messages of so many producers, every third to the exchange rare.
func filled(t *testing.T, shards, producers, messages int) *Store {
	t.Helper()
	s := onRedis(t, shards)
	var all []halfmsg.Message
	for i := range messages {
		all = append(all, halfmsg.Message{
			Name:     halfmsg.Name{Producer: fmt.Sprintf("p%d", i*i%producers), ID: fmt.Sprint(i)},
			Exchange: []string{"rare", "common", "common"}[i%3], RoutingKey: "paid",
		})
	}
	fill(t, s, all)
	return s
}

// everything lists all pages.
func everything(t *testing.T, s *Store, query halfmsg.Query) (names []string, looked int) {
	t.Helper()
	for {
		page, err := s.List(t.Context(), query)
		must.Succeed(t, err)
		for _, r := range page.Records {
			names = append(names, r.String())
		}
		looked += page.Looked
		if query.Cursor = page.Next; page.Next == "" {
			return names, looked
		}
	}
}

// TestListsOfManyProducersAreWhole has few and many producers share the looks of one script call.
func TestListsOfManyProducersAreWhole(t *testing.T) {
	t.Parallel()
	const messages = 1500 // more in each shard than one read takes
	for _, producers := range []int{1, 7, 400} {
		t.Run(fmt.Sprint(producers), func(t *testing.T) {
			t.Parallel()
			s := filled(t, 16, producers, messages)
			for want, query := range map[int]halfmsg.Query{
				messages: {Limit: 100}, messages / 3: {Limit: 30, Exchange: "rare"}, 0: {Limit: 100, Exchange: "none"},
			} {
				query.State = halfmsg.Pending
				names, looked := everything(t, s, query)
				all := len(names)
				slices.Sort(names)
				if once := len(slices.Compact(names)); once != want || all != want {
					t.Errorf("%+v lists %d, %d without repeats, want %d", query, all, once, want)
				}
				if looked < want || looked > 2*messages {
					t.Errorf("%+v looked at %d", query, looked)
				}
			}
		})
	}
}

func TestAPageEndsWithItsPatience(t *testing.T) {
	t.Parallel()
	const messages = 4000 // more than one page looks at
	s := filled(t, 16, 3, messages)
	page, err := s.List(t.Context(), halfmsg.Query{
		State: halfmsg.Pending, Limit: 10, Exchange: "none", Patience: time.Nanosecond,
	})
	if err != nil || page.Next == "" || page.Looked == 0 || page.Looked > 16*(lookSlice+3) {
		t.Errorf("the list looked at %d, next %q, %v", page.Looked, page.Next, err)
	}
	names, _ := everything(t, s, halfmsg.Query{
		State: halfmsg.Pending, Limit: 10, Exchange: "rare", Patience: time.Nanosecond,
	})
	if len(names) != (messages+2)/3 {
		t.Errorf("impatient pages list %d", len(names))
	}
}

// TestListsLeaveRedisToOthers counts the messages in one pipeline: Redis serves no other call before the end of the
// pipeline.
func TestListsLeaveRedisToOthers(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 16} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			s := filled(t, shards, 3, 3000)
			var at onceCounter
			s.intake.AddHook(&at)
			for _, query := range []halfmsg.Query{
				{Limit: 1000},
				{Limit: 100, Exchange: "none"},
				{Limit: 1000, Exchange: "common", Error: ""},
				{Limit: 100, Error: "x"},
			} {
				query.State = halfmsg.Pending
				everything(t, s, query)
			}
			if at.looked == 0 || at.looked > lookSlice || at.read == 0 || at.read > readSlice {
				t.Errorf("at most %d looked at at once, want %d, and %d read, want %d", at.looked, lookSlice, at.read, readSlice)
			}
		})
	}
}

// onceCounter notes how many messages a pipeline looks at or reads at most.
type onceCounter struct{ looked, read int }

func (*onceCounter) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (*onceCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (c *onceCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		looked, read := 0, 0
		for _, cmd := range cmds {
			args := cmd.Args()[4:] // behind EVALSHA, the script, 1 and the shard
			if args[0] != "0" {    // list.lua, not get.lua without bodies
				looked += args[2].(int)
				continue
			}
			for at := 1; at < len(args); at += 2 + args[at+1].(int) {
				read += args[at+1].(int)
			}
		}
		c.looked, c.read = max(c.looked, looked), max(c.read, read)
		return next(ctx, cmds)
	}
}
