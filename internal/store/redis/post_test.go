package redis_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// postOn has two stores on the same data.
func postOn(t *testing.T, url string) (one, two *redisstore.Store) {
	one = open(t, redisstore.Config{URL: url, Prefix: "post", Instance: "one"})
	return one, open(t, redisstore.Config{URL: url, Prefix: "post", Instance: "two"})
}

// mailbox receives the letters of a mailbox until the test ends.
func mailbox(t *testing.T, store *redisstore.Store, name string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	letters, ended := make(chan string, 10), make(chan error, 1)
	go func() { ended <- store.Receive(ctx, name, func(letter []byte) { letters <- string(letter) }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err == nil {
			t.Error("the end of a subscription is no error")
		}
	})
	return letters
}

// sendTo sends a letter as soon as someone receives.
func sendTo(t *testing.T, store *redisstore.Store, name, letter string) {
	t.Helper()
	servers.Eventually(t, 20*time.Second, "someone receives from "+name, func() bool {
		received, err := store.Send(t.Context(), name, []byte(letter))
		if err != nil {
			t.Log(err)
		}
		return received
	})
}

func TestLettersAndAnnouncements(t *testing.T) {
	t.Parallel()
	for name, urlOf := range map[string]func(t *testing.T) string{
		"embedded": func(t *testing.T) string { return "redis://" + miniredis.RunT(t).Addr() },
		"server":   func(t *testing.T) string { return servers.Redis(t).URL() },
		"cluster":  func(t *testing.T) string { return "redis://" + strings.Join(servers.RedisCluster(t), ",") },
		"sentinel": func(t *testing.T) string { return servers.Sentinel(t, servers.Redis(t)).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := postOn(t, urlOf(t))
			lettersArrive(t, one, two)
			announcementsEnd(t, one, two)
		})
	}
}

func lettersArrive(t *testing.T, one, two *redisstore.Store) {
	if received, err := one.Send(t.Context(), "two", []byte("lost")); received || err != nil {
		t.Errorf("a letter to nobody: %t, %v", received, err)
	}
	ofOne, ofTwo := mailbox(t, one, "one"), mailbox(t, two, "two")
	sendTo(t, one, "two", "question")
	sendTo(t, two, "one", "answer")
	if letter := <-ofTwo; letter != "question" {
		t.Errorf("two got %q", letter)
	}
	if letter := <-ofOne; letter != "answer" {
		t.Errorf("an instance got %q", letter)
	}
}

func announcementsEnd(t *testing.T, one, two *redisstore.Store) {
	t.Helper()
	see := func(producer string, wantRemembered bool, want ...string) {
		t.Helper()
		mailboxes, announced, err := two.Mailboxes(t.Context(), producer)
		slices.Sort(mailboxes)
		if err != nil || announced >= 0 != wantRemembered || announced > time.Minute || !slices.Equal(mailboxes, want) {
			t.Errorf("%s: %q, %v ago, %v; want %q, %t", producer, mailboxes, announced, err, want, wantRemembered)
		}
	}
	announce := func(store *redisstore.Store, mailbox string, lasting time.Duration, producers ...string) {
		t.Helper()
		must.Succeed(t, store.Announce(t.Context(), mailbox, producers, lasting))
	}
	see("orders", false)
	announce(one, "one", time.Minute, "orders", "stock")
	announce(two, "two", time.Minute, "orders")
	see("orders", true, "one", "two")
	see("stock", true, "one")
	announce(one, "one", 0, "orders", "stock")
	see("orders", true, "two")
	see("stock", true)
	announce(one, "one", time.Millisecond, "orders")
	servers.Eventually(t, 10*time.Second, "an announcement ends by itself", func() bool {
		mailboxes, _, err := two.Mailboxes(t.Context(), "orders")
		return err == nil && slices.Equal(mailboxes, []string{"two"})
	})
	if err := one.Announce(t.Context(), "one", nil, time.Minute); err != nil {
		t.Errorf("announcing nobody: %v", err)
	}
}

// A coordinator that is cut off finds out by the error, and subscribes again.
func TestASubscriptionEndsWithItsServer(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store, _ := postOn(t, server.URL())
	ended := make(chan error, 1)
	go func() { ended <- store.Receive(t.Context(), "one", func([]byte) {}) }()
	servers.Eventually(t, 20*time.Second, "someone receives", func() bool {
		received, _ := store.Send(t.Context(), "one", nil)
		return received
	})
	server.Kill()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(20 * time.Second):
		t.Error("the subscription goes on")
	}
}
