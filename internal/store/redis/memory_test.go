package redis_test

import (
	"crypto/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// sent is how many bytes Redis has sent to all clients.
func sent(t *testing.T, client *redis.Client) int {
	t.Helper()
	_, rest, _ := strings.Cut(client.Info(t.Context(), "stats").Val(), "total_net_output_bytes:")
	n, err := strconv.Atoi(rest[:strings.IndexByte(rest, '\r')])
	must.Succeed(t, err)
	return n
}

// A message stored here is claimed without a read, with the same result.
func TestOwnMessagesAreNotReadAgain(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{Instance: "one"})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	m := half("1")
	m.Body = make([]byte, 50_000)
	_, _ = rand.Read(m.Body) // incompressible
	m.Headers, m.ContentType, m.Trace = map[string]string{"a": "b"}, "text/plain",
		"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	m.Delay, m.CallbackTarget, m.ConfirmAfter = time.Second, "dns:///orders:9000", time.Minute
	create(t, store, m)
	before := sent(t, client)
	known := submit(t, store, m.Name)[0]
	if got := sent(t, client) - before; got > len(m.Body)/2 {
		t.Errorf("Redis sent %d bytes", got)
	}
	settle(t, store, halfmsg.EventReleased, 0, known)
	before = sent(t, client)
	read := submit(t, other, m.Name)[0]
	if got := sent(t, client) - before; got < len(m.Body) {
		t.Errorf("Redis sent %d bytes to somebody who knew nothing", got)
	}
	if diff := cmp.Diff(known, read, cmpopts.IgnoreFields(halfmsg.Claim{}, "Token", "ClaimedAt")); diff != "" {
		t.Errorf("known and read:\n%s", diff)
	}
}

// After a discard, a new message of the same name replaces the remembered message. The store tells the two apart by the
// millisecond of their creation.
func TestWhatWasReplacedIsReadAgain(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	m := half("1")
	create(t, store, m)
	if r := other.Discard(t.Context(), []halfmsg.Name{m.Name}, halfmsg.None)[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	discarded := client.Time(t.Context()).Val().UnixMilli()
	servers.Eventually(t, time.Minute, "another millisecond", func() bool {
		return client.Time(t.Context()).Val().UnixMilli() > discarded
	})
	m.Body = []byte("another")
	create(t, other, m)
	if claim := submit(t, store, m.Name)[0]; string(claim.Body) != "another" {
		t.Errorf("claimed with the body %q", claim.Body)
	}
}

// Fields outside the digest come from the call that stored the message.
func TestRepeatedCallCountsAsUnknown(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	first, again := half("1"), half("1")
	first.CallbackTarget, again.CallbackTarget = "dns:///first:9000", "dns:///again:9000"
	create(t, other, first)
	create(t, store, again)
	if claim := submit(t, store, first.Name)[0]; claim.CallbackTarget != first.CallbackTarget {
		t.Errorf("claimed with the callback target %s", claim.CallbackTarget)
	}
}

// Attempts counted by other coordinators are not forgotten.
func TestWhatHappenedElsewhereIsKnown(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	create(t, store, half("1"))
	settle(t, other, halfmsg.EventUnknown, 0, submit(t, other, half("1").Name)...)
	if claim := submit(t, store, half("1").Name)[0]; claim.ConfirmAttempts != 1 {
		t.Errorf("claimed with %d attempts", claim.ConfirmAttempts)
	}
}

// An owner whose lease has ended is in the timeline, even where the message need not be read.
func TestTakeoverOfKnownMessageIsTold(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Indexed(redisstore.Config{}))
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Instance: "other"})
	name := half("1").Name
	create(t, store, half("1"))
	submit(t, other, name)
	client.ZAddXX(t.Context(), "msghandler:{00}:orders:pending", redis.Z{Score: 1, Member: name.ID}) // the lease has ended
	submit(t, store, name)
	story := storyOf(t, store, name)
	if last := story[len(story)-1]; last.What != halfmsg.TakenOver || !strings.Contains(last.Cause, "other") {
		t.Errorf("the last report is %+v", last)
	}
}
