package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/test/must"
)

// crowd is how many members each key of the test has: more than Lua can unpack, and than a script may work on at once.
const crowd = 10_000

// TestScriptsBoundTheirWork calls every script with 0 and with far too much for each of its bounds, where every key has
// thousands of members. No call may fail, and none may make Redis work for long.
func TestScriptsBoundTheirWork(t *testing.T) {
	t.Parallel()
	s := onRedis(t, 1)
	s.config.Archive = Archive{Retention: time.Hour, MaxMessages: 10 * crowd, MaxBody: 100}.over(1)
	var err error
	s.scripts, err = loadScripts(t.Context(), s.intake, s.config)
	must.Succeed(t, err)
	missing := map[string]bool{}
	for name := range s.scripts.byName() {
		missing[name] = true
	}
	for _, bounds := range []int{0, crowd} {
		crowded(t, s)
		for _, test := range scriptCalls(s, bounds) {
			delete(missing, test.name)
			t.Run(fmt.Sprint(test.name, " ", test.what, " ", bounds), func(t *testing.T) {
				if commands := boundedCall(t, s, *s.scripts.byName()[test.name], test.call); commands > 6000 {
					t.Errorf("the script made %d commands", commands)
				}
			})
		}
	}
	if len(missing) > 0 {
		t.Errorf("scripts without a call in this test: %v", missing)
	}
}

// A producer may have any number of targets that do not answer.
func TestClaimLeavesOutFewTargets(t *testing.T) {
	t.Parallel()
	var all []halfmsg.LeftOut
	for i := range crowd {
		for _, producer := range []string{"orders", "bills"} {
			to := halfmsg.Target{Producer: producer, Address: fmt.Sprint("dead:", i)}
			all = append(all, halfmsg.LeftOut{Target: to, Wait: time.Minute})
		}
	}
	for producer, want := range map[string]int{"orders": maxLeftOut, "other": 0} {
		p := part{shares: []share{{producer, 1}}}
		some := p.leftOut(all)
		foreign := slices.ContainsFunc(some, func(l halfmsg.LeftOut) bool { return l.Producer != producer })
		if len(some) != want || foreign {
			t.Errorf("a claim for %s leaves out %d targets, some of other producers: %v", producer, len(some), foreign)
		}
	}
}

// boundedCall makes a call of a script, and counts the commands of the script.
func boundedCall(t *testing.T, s *Store, sc *script, c *call) (commands int) {
	t.Helper()
	client := s.loops.(*redis.Client)
	client.ConfigResetStat(t.Context())
	run(t.Context(), client, sc, []*call{c})
	if c.err != nil {
		t.Fatal(c.err)
	}
	for _, answer := range c.reply {
		if text := fmt.Sprint(answer); strings.Contains(text, "unpack") || strings.Contains(text, "user_script") {
			t.Fatalf("the script answers %s", text)
		}
	}
	for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
		var n int
		if _, text, is := strings.Cut(line, ":calls="); is {
			_, _ = fmt.Sscan(strings.ReplaceAll(text, ",", " "), &n)
			commands += n
		}
	}
	return commands
}

// scriptCall is one call of a script in the test.
type scriptCall struct {
	name, what string
	call       *call
}

// scriptCalls are calls with such bounds. Those about messages name as many as the largest call of the store does.
func scriptCalls(s *Store, bound int) []scriptCall {
	shard := s.keys.shards[0]
	ids := func(each ...any) (args []any) {
		args = []any{"orders", maxCallItems}
		for i := range maxCallItems {
			args = append(append(args, fmt.Sprint(i)), each...)
		}
		return args
	}
	callWith := func(args []any, more ...any) *call {
		c := newCall(shard, 0)
		c.args, c.messages = slices.Concat(args, more), maxCallItems
		return c
	}
	seen := []any{s.name, "", 0}
	claimed := func(code any, more ...any) []any {
		return append(append([]any{}, seen...), append([]any{code, "a/b.1", 1000}, more...)...)
	}
	record := "half 0000000000000 digest {}\n"
	pending, sendable := codeOf[halfmsg.Pending], codeOf[halfmsg.Sendable]
	move := []any{1, rules[halfmsg.EventRollback], 1, 1, "", bound, bound, "cause"}
	second := func(c *call) *call { c.part = settlePart; return c }
	mailboxes := newCall(shard+"attended", 0)
	mailboxes.args = []any{"box", bound, bound}
	calls := []scriptCall{
		{"due", "parked", callWith([]any{sendable, bound, pageWork, 0, 2, "events", ""})},
		{"due", "pages", callWith([]any{pending, bound, bound, 0, 0, "orders", bound})},
		{"claim", "", callWith(claimed(sendable, bound, 1, "events", 1, "orders", "", bound, bound, "orders", bound))},
		{"create", "", callWith([]any{bound, bound}, ids("digest", bound, record, "customer-7")...)},
		{"point", "", callWith(nil, ids("customer-7")...)},
		{"create_paged", "", callWith([]any{bound}, ids("digest", bound, record)...)},
		{"submit", "", callWith(claimed("1----", bound), ids("")...)},
		{"trust", "", callWith(claimed("2----", bound), ids("", bound)...)},
		{"moves", "submit", callWith(claimed(pending, bound), ids("")...)},
		{"moves", "settle", second(callWith([]any{pending, 1, sendable, "a/b.1", bound}, ids(1, "digest")...))},
		{"move", "", callWith(move, ids(1, "")...)},
		{"replay", "", callWith([]any{"tester", "why", "false"}, ids("digest", bound, bound, record)...)},
		{"get", "", callWith([]any{"1"}, ids()...)},
		{"list", "", callWith([]any{pending, 0, bound, "", bound, "", "", "", "", "", ""})},
		{"stats", "", callWith(nil)},
		{"owners", "", callWith([]any{bound})},
		{"backlog", "", callWith([]any{sendable, bound, "", "events"})},
		{"parked", "", callWith(nil)},
		{"repair", "", callWith([]any{"orders", 0}, ids()[2:]...)},
		{"pulse", "", callWith(append(slices.Clone(seen), bound, bound, bound, 1))},
		{"coordinators", "", callWith([]any{
			s.name, reportRunning, "text", "text", bound, crowd, min(bound, peers.MaxReports), 1,
		})},
		{"attend", "", mailboxes},
		{"bytes", "", callWith([]any{bound, "orders", "nobody"})},
		{"history", "", callWith([]any{"+", "-", bound, "", "", ""})},
		{"trim", "", callWith([]any{max(1, bound), bound / 2, bound, 1000})},
		{"charts", "", callWith([]any{
			max(1, bound), bound, bound, 1, "sum", bound, 1, "gauge", bound, "x", "name", bound, 0, 0,
		})},
	}
	return calls
}

// crowded writes thousands of members into all keys of a shard.
func crowded(t *testing.T, s *Store) {
	t.Helper()
	ctx, shard := t.Context(), s.keys.shards[0]
	client := s.loops.(*redis.Client)
	must.Succeed(t, client.FlushDB(ctx).Err())
	now := client.Time(ctx).Val().UnixMilli()
	pipe := client.Pipeline()
	base := shard + "orders:"
	pipe.SAdd(ctx, shard+producersKey, "orders")
	for i := range crowd {
		fillMember(ctx, pipe, base, fmt.Sprint(i), now)
		fillShared(ctx, pipe, shard, i, now)
		if i%1000 == 999 {
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// fillMember writes a message into every key that names it.
func fillMember(ctx context.Context, pipe redis.Pipeliner, base, id string, now int64) {
	pipe.Set(ctx, base+recordPrefix+id, `half 0000000000001 digest {"broker":"events"}`+"\n", 0)
	for _, state := range halfmsg.Unfinished() {
		pipe.ZAdd(ctx, base+state.String(), redis.Z{Score: float64(now), Member: id})
		pipe.ZAdd(ctx, base+state.String()+createdSuffix, redis.Z{Score: 1, Member: id})
	}
	cell := fmt.Sprintf("%013d %013d 0000000000000 -", now, now)
	pipe.HSet(ctx, base+halfmsg.Pending.String()+cellsSuffix, "c"+id, cell)
	pipe.RPush(ctx, base+pagePrefix+"1", "c"+id)
	if len(id)%2 == 0 {
		pipe.HSet(ctx, base+leasesKey, id, "a/b.1")
	}
	pipe.ZAdd(ctx, base+pagesKey, redis.Z{Score: float64(now) * 2, Member: id})
	pipe.HSet(ctx, base+keysKey, id, "customer-7")
	pipe.ZAdd(ctx, base+chainPrefix+"customer-7", redis.Z{Score: float64(now), Member: id})
}

// fillShared writes a member into every key that producers share.
func fillShared(ctx context.Context, pipe redis.Pipeliner, shard string, i int, now int64) {
	other := fmt.Sprint("other/", i)
	pipe.ZAdd(ctx, shard+parkedName+"events", redis.Z{Score: float64(now), Member: "orders/" + fmt.Sprint(i)})
	pipe.SAdd(ctx, shard+parkedForName, other)
	pipe.HSet(ctx, shard+pulseName, other, 1)
	pipe.HSet(ctx, shard+coordinatorsName, other, fmt.Sprintf("%d\nrunning\ntext\ntext", now-1))
	pipe.ZAdd(ctx, shard+"attended", redis.Z{Score: float64(now * 2), Member: other})
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: shard + archiveName, ID: fmt.Sprintf("%d-1", i+1), Values: []string{
		messageField, "done 1 1 1 whole orders " + fmt.Sprint(i), recordField, "half 1 x {}\n",
	}})
}
