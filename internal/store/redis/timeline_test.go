package redis_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// executed is how many commands a server has executed since the last call of executed, scripts' commands included.
func executed(t *testing.T, client *redis.Client) (total int) {
	t.Helper()
	for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
		_, rest, _ := strings.Cut(line, ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(calls) // a headline has none
		total += n
	}
	client.ConfigResetStat(t.Context())
	return total
}

// TestOrdinaryWayPaysNothingForTimelines counts the commands of messages that are submitted, committed and published
// at the first try. Only messages with incidents pay for timelines.
func TestOrdinaryWayPaysNothingForTimelines(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1})
	const n = 100
	all, names := numbered(n, 10)
	executed(t, client)
	create(t, store, all...)
	finish(t, store, names)
	// The record gets its time, and then is replaced by the receipt; the rest is the message's part of a batch.
	if per := float64(executed(t, client)) / n; per > 2.5 {
		t.Errorf("%.2f commands for each message", per)
	}
}

// happened settles a message without a lease holder.
func happened(t *testing.T, store *redisstore.Store, name halfmsg.Name, event halfmsg.Event, cause string) {
	t.Helper()
	claim := submit(t, store, name)[0]
	r := store.Settle(t.Context(), []halfmsg.Settlement{{Name: name, Token: claim.Token, Event: event, Cause: cause}})[0]
	if r.Err != nil {
		t.Fatal(r.Err)
	}
}

func storyOf(t *testing.T, store *redisstore.Store, name halfmsg.Name) []halfmsg.Happening {
	t.Helper()
	record, err := store.Get(t.Context(), name)
	must.Succeed(t, err)
	return record.Story()
}

// TestATimelineIsText reads a timeline as docs/reference/redis.md shows timelines, and adds foreign lines.
func TestATimelineIsText(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Instance: "coordinator 1/a"})
	name := half("1").Name
	create(t, store, half("1"))
	happened(t, store, name, halfmsg.EventUnknown, "the producer answered UNKNOWN")
	happened(t, store, name, halfmsg.EventUnreachable, "a\nb")
	happened(t, store, name, halfmsg.EventUnreachable, "a\nb")
	notes := key(t, client, "x:1")
	text := client.HGet(t.Context(), notes, "events").Val()
	want := `^\d{13} \d{13} 2 unreachable coordinator1/a a b\n` +
		`\d{13} \d{13} 1 unknown coordinator1/a the producer answered UNKNOWN$`
	if !regexp.MustCompile(want).MatchString(text) {
		t.Errorf("the timeline is\n%s", text)
	}
	for _, foreign := range []string{
		"", "\n\n", "nonsense", "1 2 3", "x y z unreachable c a b", "1 1 99999999999999999999999 unreachable c a b",
		"-1 -1 -1 unknown c d",
		"1 1 1 unreachable", strings.Repeat("1 1 1 unknown c d\n", 500), strings.Repeat("%d ", 2000), "\x00\xff",
	} {
		client.HSet(t.Context(), notes, "events", foreign)
		storyOf(t, store, name)
		for range 2 {
			happened(t, store, name, halfmsg.EventUnreachable, "a\nb")
		}
		story := storyOf(t, store, name)
		if last := story[len(story)-1]; last.What != "unreachable" || last.Cause != "a b" ||
			len(story) > 1+halfmsg.MaxHappenings {
			t.Errorf("after %.40q the story is %+v", foreign, story)
		}
	}
}
