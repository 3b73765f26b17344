package events_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/events"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func fixed(text string) func() string { return func() string { return text } }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// webhook is a server with scripted answers.
type webhook struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request)

	mu    sync.Mutex
	posts []events.Post
	auth  string
}

func newWebhook(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *webhook {
	t.Helper()
	h := &webhook{answer: answer}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p events.Post
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	h.mu.Lock()
	h.posts, h.auth = append(h.posts, p), r.Header.Get("Authorization")
	h.mu.Unlock()
	h.answer(w, r)
}

func (h *webhook) got() []events.Post {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]events.Post(nil), h.posts...)
}

func taken(http.ResponseWriter, *http.Request) {}

// counts are the metrics of a test.
type counts struct {
	mu  sync.Mutex
	all map[string]int
}

func (c *counts) Noted(kind string, n int) { c.add("noted "+kind, n) }

func (c *counts) Posted(result string) { c.add("posted "+result, 1) }

func (c *counts) add(what string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]int{}
	}
	c.all[what] += n
}

func (c *counts) of(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[what]
}

func start(t *testing.T, config events.Config) (*events.Notifier, *counts) {
	t.Helper()
	c := &counts{}
	config.Metrics, config.Instance, config.Logger = c, "host-1", slog.New(slog.DiscardHandler)
	if config.Gather == 0 {
		config.Gather = 20 * time.Millisecond
	}
	config.Gather = cmp.Or(config.Gather, time.Second)
	teller := events.New(config)
	t.Cleanup(func() { _ = teller.Close(context.Background()) })
	return teller, c
}

func TestEqualEventsAreMerged(t *testing.T) {
	h := newWebhook(t, taken)
	teller, c := start(t, events.Config{URL: fixed(h.URL), Token: fixed("secret"), Gather: 200 * time.Millisecond})
	for i := range 1000 {
		teller.Note(events.Dead, "orders", "", fmt.Sprint("orders/", i))
	}
	teller.Note(events.BreakerOpen, "stock", "it cannot be reached")
	servers.Eventually(t, 10*time.Second, "both arrive", func() bool { return c.of("posted ok") > 0 })
	p := h.got()[0]
	if len(p.Events) != 2 || p.Instance != "host-1" || p.ID == "" || h.auth != "Bearer secret" {
		t.Fatalf("got %+v with %q", p, h.auth)
	}
	dead, breaker := p.Events[0], p.Events[1]
	if dead.Kind != events.Dead || dead.Subject != "orders" || dead.Count != 1000 || len(dead.Messages) != 10 ||
		dead.Messages[0] != "orders/0" || dead.LastAt.Before(dead.FirstAt) {
		t.Errorf("got %+v", dead)
	}
	if breaker.Kind != events.BreakerOpen || breaker.Count != 1 || breaker.Detail != "it cannot be reached" {
		t.Errorf("got %+v", breaker)
	}
	if c.of("noted dead") != 1000 {
		t.Errorf("%d were counted", c.of("noted dead"))
	}
}

// The order of the events ends with the current state.
func TestEventsAreOrderedByLastOccurrence(t *testing.T) {
	h := newWebhook(t, taken)
	teller, c := start(t, events.Config{URL: fixed(h.URL), Gather: 300 * time.Millisecond})
	for _, kind := range []events.Kind{events.StoreAway, events.StoreBack, events.StoreAway} {
		teller.Note(kind, "", "")
	}
	servers.Eventually(t, 10*time.Second, "the events are posted", func() bool { return c.of("posted ok") > 0 })
	posted := h.got()[0].Events
	if last := posted[len(posted)-1]; last.Kind != events.StoreAway || last.Count != 2 {
		t.Errorf("the last of %d events is %s, %d times; want Redis, twice", len(posted), last.Kind, last.Count)
	}
}

func TestAFailedPostIsRetried(t *testing.T) {
	for _, status := range []int{http.StatusInternalServerError, http.StatusTooManyRequests} {
		failing := 1
		h := newWebhook(t, func(w http.ResponseWriter, _ *http.Request) {
			if failing > 0 {
				failing--
				w.WriteHeader(status)
			}
		})
		teller, c := start(t, events.Config{URL: fixed(h.URL)})
		teller.Note(events.Dead, "orders", "")
		servers.Eventually(t, 20*time.Second, "the event is taken in the end", func() bool { return c.of("posted ok") == 1 })
		if posts := h.got(); len(posts) != 2 || posts[0].ID != posts[1].ID || c.of("posted failed") != 1 {
			t.Errorf("%d: got %+v", status, posts)
		}
	}
}

func TestPostsReachARestartedWebhook(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	addr := listener.Addr().String()
	_ = listener.Close()
	teller, c := start(t, events.Config{URL: fixed("http://" + addr)})
	teller.Note(events.Dead, "orders", "", "orders/1")
	servers.Eventually(t, 10*time.Second, "no receiver is there", func() bool { return c.of("posted failed") > 0 })
	teller.Note(events.Dead, "orders", "", "orders/2")
	teller.Note(events.Dead, "orders", "", "orders/3")
	listener, err = net.Listen("tcp", addr)
	must.Succeed(t, err)
	h := &webhook{answer: taken}
	h.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Second}}
	h.Start()
	defer h.Close()
	servers.Eventually(t, 30*time.Second, "both posts arrive", func() bool { return len(h.got()) == 2 })
	if first, second := h.got()[0], h.got()[1]; first.Events[0].Count != 1 || second.Events[0].Count != 2 {
		t.Errorf("got %+v, then %+v", first, second)
	}
}

func TestARefusedPostIsNotRetried(t *testing.T) {
	for _, status := range []int{http.StatusForbidden, http.StatusFound} {
		elsewhere := newWebhook(t, taken)
		h := newWebhook(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, status)
		})
		teller, c := start(t, events.Config{URL: fixed(h.URL)})
		teller.Note(events.Dead, "orders", "")
		servers.Eventually(t, 10*time.Second, "the event is given up", func() bool { return c.of("posted given_up") == 1 })
		teller.Note(events.Abandoned, "orders", "")
		servers.Eventually(t, 10*time.Second, "others are posted", func() bool { return len(h.got()) == 2 })
		if len(elsewhere.got()) != 0 {
			t.Error("a redirect was followed, with the token")
		}
	}
}

// While the webhook hangs, Note returns at once and the number of waiting events is bounded.
func TestNoteDoesNotWaitForWebhook(t *testing.T) {
	release := make(chan struct{})
	h := newWebhook(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer h.CloseClientConnections()
	teller, c := start(t, events.Config{URL: fixed(h.URL)}.WithTimeout(time.Hour))
	teller.Note(events.Dead, "first", "")
	servers.Eventually(t, 10*time.Second, "a post hangs", func() bool { return len(h.got()) == 1 })
	for i := range 3000 { // a Note that waits would wait for an hour
		teller.Note(events.Dead, fmt.Sprint("producer-", i), "", "some/message")
	}
	if n := teller.Waiting(); n != 1000 {
		t.Errorf("%d wait", n)
	}
	close(release)
	servers.Eventually(t, 10*time.Second, "the delayed event arrives", func() bool { return c.of("posted ok") == 2 })
	if p := h.got()[1]; len(p.Events) != 1000 || p.Dropped != 2000 {
		t.Errorf("%d events, %d dropped", len(p.Events), p.Dropped)
	}
}

func TestLastEventsArePostedAtEnd(t *testing.T) {
	h := newWebhook(t, taken)
	teller, _ := start(t, events.Config{URL: fixed(h.URL), Gather: time.Hour})
	teller.Note(events.StoreAway, "", "Redis does not answer")
	must.Succeed(t, teller.Close(t.Context()))
	if posts := h.got(); len(posts) != 1 || posts[0].Events[0].Kind != events.StoreAway {
		t.Errorf("got %+v", posts)
	}

	hanging := newWebhook(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	teller, _ = start(t, events.Config{URL: fixed(hanging.URL)}.WithTimeout(time.Hour))
	teller.Note(events.StoreAway, "", "")
	servers.Eventually(t, 10*time.Second, "a post hangs", func() bool { return len(hanging.got()) == 1 })
	began := time.Now()
	if err := teller.Close(t.Context()); err != nil || time.Since(began) > 10*time.Second {
		t.Errorf("closing took %v: %v", time.Since(began), err)
	}
}

func TestWithoutAWebhookEventsAreCounted(t *testing.T) {
	teller, c := start(t, events.Config{})
	teller.Note(events.Dead, "orders", "", "orders/1", "orders/2")
	if c.of("noted dead") != 2 || teller.Waiting() != 0 {
		t.Errorf("%d counted, %d wait", c.of("noted dead"), teller.Waiting())
	}
}

func TestThresholdsNoteBeginningAndEnd(t *testing.T) {
	h := newWebhook(t, taken)
	teller, c := start(t, events.Config{URL: fixed(h.URL), Gather: 100 * time.Millisecond})
	var log strings.Builder
	thresholds := events.Thresholds{Notifier: teller, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	for _, waiting := range []int{0, 999, 1000, 5000, 1000, 999, 0} {
		thresholds.Compare("sendable", waiting, 1000)
	}
	thresholds.Compare("queue failed", 0, 1)
	servers.Eventually(t, 10*time.Second, "both are posted", func() bool { return c.of("posted ok") > 0 })
	all := h.got()[0].Events
	if len(all) != 2 || all[0].Kind != events.Backlog || all[1].Kind != events.BacklogOver || all[0].Count != 1 {
		t.Errorf("got %+v", all)
	}
	if strings.Count(log.String(), "\n") != 2 {
		t.Errorf("the log says %s", &log)
	}
}

// Whatever the name of a webhook resolves to, events are posted to no cloud's metadata service.
func TestWebhookAtReservedAddressGetsNothing(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := events.Config{
		URL: fixed("http://169.254.169.254/hook"), Gather: time.Millisecond, Instance: "host-1", Metrics: &counts{},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	}
	teller := events.New(c)
	teller.Note(events.StoreAway, "", "")
	must.Succeed(t, teller.Close(t.Context()))
	if !strings.Contains(log.String(), "which is never called; correct events.webhook") {
		t.Errorf("the log says:\n%s", &log)
	}
}
