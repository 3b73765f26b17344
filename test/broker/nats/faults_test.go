package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// recovers fails the test unless messages are acknowledged again without anybody's help.
func recovers(t *testing.T, p *nats.Publisher) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "messages are acknowledged again", func() bool {
		return outcome(t, p, message(-1, "ORDERS", "orders.x")).Outcome == publish.Acked
	})
}

// A frozen server holds the messages that it got. After the thaw it stores them, and their repeats are duplicates.
func TestFrozenServerLeavesMessagesUnsure(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	a := connect(t, server.URL)
	a.stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: server.URL, ConfirmTimeout: 4 * time.Second})
	server.Freeze()
	batch := messages(100, "ORDERS", "orders.x")
	began := time.Now()
	expect(t, publishAll(t.Context(), p, batch), publish.Unsure)
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("the publish took %v", took)
	}
	server.Thaw()
	recovers(t, p)
	for i := range batch {
		batch[i].Attempt++
	}
	servers.Eventually(t, 30*time.Second, "all repeats are acknowledged", func() bool {
		return count(publishAll(t.Context(), p, batch))[publish.Acked] == len(batch)
	})
	for id, n := range a.ids("ORDERS") {
		if n != 1 {
			t.Errorf("message %s is there %d times", id, n)
		}
	}
}

// An account without room is an outage: no attempt is used, and Ready says why.
func TestFullAccountIsAnOutage(t *testing.T) {
	t.Parallel()
	account := func(room string) string {
		return `accounts { A { jetstream { max_file: ` + room + ` }, users: [{ user: a, password: a }] } }
no_auth_user: a`
	}
	server := servers.NATS(t, account("1G"))
	connect(t, server.URL).stream("ORDERS", "orders.>")
	p := publisher(t, nats.Config{URL: server.URL, ConfirmTimeout: 4 * time.Second})
	expect(t, publishAll(t.Context(), p, messages(100, "ORDERS", "orders.x")), publish.Acked)
	server.Configure(account("1K"))
	n := 0
	next := func() publish.Result {
		n++
		m := message(n, "ORDERS", "orders.x")
		m.Name.ID = fmt.Sprint("late ", n)
		return outcome(t, p, m)
	}
	servers.Eventually(t, 30*time.Second, "a message finds no room", func() bool {
		return next().Outcome == publish.Unsent
	})
	servers.Eventually(t, 30*time.Second, "the publisher is not ready", func() bool {
		if r := next(); r.Outcome != publish.Unsent {
			t.Fatalf("without room: %v", r)
		}
		return errors.Is(p.Ready(), publish.ErrBlocked)
	})
	t.Log(p.Ready())
	server.Configure(account("1G"))
	recovers(t, p)
	ready(t, p)
}

// A write that hangs ends the connection long before the pings do.
func TestHangingWriteEndsConnection(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	connect(t, server.URL).stream("ORDERS", "orders.>")
	x := wire.TCP(t, wire.Host(t, server.URL))
	p := publisher(t, nats.Config{URL: x.URL(server.URL), ConfirmTimeout: 20 * time.Second})
	recovers(t, p)
	x.Hold()
	batch := messages(100, "ORDERS", "orders.x")
	body := make([]byte, 1<<20-4096)
	for i := range batch {
		batch[i].Body = body
	}
	began := time.Now()
	counts := count(publishAll(t.Context(), p, batch))
	if took := time.Since(began); took > 10*time.Second || counts[publish.Unsure]+counts[publish.Unsent] != len(batch) {
		t.Errorf("after %v: %v", took, counts)
	}
	x.Restore()
	recovers(t, p)
}

func TestSentMessageOutlivesItsContext(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	connect(t, server.URL).stream("ORDERS", "orders.>")
	x := wire.TCP(t, wire.Host(t, server.URL))
	p := publisher(t, nats.Config{URL: x.URL(server.URL)})
	recovers(t, p)
	x.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan []publish.Result)
	go func() { answers <- publishAll(ctx, p, messages(1, "ORDERS", "orders.x")) }()
	servers.Eventually(t, 10*time.Second, "the message is in flight", func() bool { return p.InFlight() == 1 })
	cancel()
	x.Restore()
	expect(t, <-answers, publish.Acked)
}

// Close with a context that has ended gives up what is in flight.
func TestCloseGivesUpInTime(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	connect(t, server.URL).stream("ORDERS", "orders.>")
	p, err := nats.New(quick(nats.Config{URL: server.URL, ConfirmTimeout: 20 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	ready(t, p)
	server.Freeze()
	answers := make(chan []publish.Result)
	go func() { answers <- publishAll(t.Context(), p, messages(10, "ORDERS", "orders.x")) }()
	servers.Eventually(t, 10*time.Second, "messages are in flight", func() bool { return p.InFlight() == 10 })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed with %v", err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the publish took %v", took)
	}
	expect(t, <-answers, publish.Unsure)
	if !errors.Is(p.Ready(), publish.ErrStopped) {
		t.Errorf("ready: %v", p.Ready())
	}
}

// The servers of a cluster name each other, so one address is enough also when its server is gone later.
func TestDiscoveredServersReplaceTheFirst(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.make(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Replicas: 3})
	first := connect(t, c.nodes[0].URL)
	servers.Eventually(t, time.Minute, "the first server names the others", func() bool {
		return len(first.js.Conn().DiscoveredServers()) >= 2
	})
	p := publisher(t, nats.Config{URL: c.nodes[0].URL})
	c.nodes[0].Kill()
	recovers(t, p)
}

func TestLoginErrorHidesPassword(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t, `authorization { user: orders, password: right }`)
	log := &servers.Log{}
	wrong := strings.Replace(server.URL, "nats://", "nats://orders:hunter2@", 1)
	p, err := nats.New(nats.Config{
		URL:    wrong,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, 10*time.Second, "the refusal is reported", func() bool {
		return strings.Contains(p.Ready().Error(), "Authorization Violation")
	})
	r := outcome(t, p, message(1, "ORDERS", "orders.x"))
	if r.Outcome != publish.Unsent || !errors.Is(r.Cause, publish.ErrDisconnected) {
		t.Errorf("got %v", r)
	}
	closePublisher(t, p, 5*time.Second)
	if text := log.String() + r.Cause.Error(); strings.Contains(text, "hunter2") || !strings.Contains(text, "127.0.0.1") {
		t.Errorf("the log and the cause: %s", text)
	}
	if _, err := nats.Examine(t.Context(), nats.Config{URL: wrong}); !errors.Is(err, publish.ErrAccessRefused) {
		t.Errorf("examine: %v", err)
	}
}

func TestBadURLErrorHidesTheURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"amqp://u:hunter2@h/", "nats://u:hunter/2@h/", "nats://u:hunter2@h:port/", "nats://u:hunter2@h?tokn=x", "",
		"embedded:",
		"nats://u:hunter2@h?token=x", "nats://hunter2@h", "nats://h/hunter2", "nats://h?cacertfile=hunter2",
	} {
		p, err := nats.New(quick(nats.Config{URL: bad}))
		switch {
		case err == nil:
			t.Errorf("%q was taken", bad)
			closePublisher(t, p, time.Second)
		case strings.Contains(err.Error(), "hunter"), !strings.HasPrefix(err.Error(), "URL of NATS "):
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestPublishesOverTLSWithToken(t *testing.T) {
	t.Parallel()
	_, cert, key := publishtest.SelfSigned(t)
	server := servers.NATS(t, `tls { cert_file: "`+cert+`", key_file: "`+key+`" }`, `authorization { token: "a b" }`)
	address := strings.Replace(server.URL, "nats://", "tls://", 1) + "?token=a+b"
	trusting := address + "&cacertfile=" + url.QueryEscape(cert)
	seen := publishtest.Handshakes{}
	p := publisher(t, nats.Config{URL: trusting, Handshake: seen.Note})
	seen.Expect(t, strings.TrimPrefix(server.URL, "nats://"))
	r := outcome(t, p, message(1, "NONE", "none"))
	if r.Outcome != publish.Refused {
		t.Errorf("got %v", r)
	}
	ready(t, open(t, nats.Config{URL: address + "&skip_verify=true"}))
	distrustful := open(t, nats.Config{URL: address})
	servers.Eventually(t, 10*time.Second, "a certificate of an unknown authority is refused", func() bool {
		return strings.Contains(distrustful.Ready().Error(), "certificate")
	})
}

// The question about a stream has no answer, as the user may not ask. A caller waits no longer than its own context.
func TestLookupEndsWithItsCall(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t, `authorization { users: [ { user: u, password: p
		permissions: { publish: { deny: "$JS.API.STREAM.INFO.>" } } } ] }`)
	js := connect(t, strings.Replace(server.URL, "//", "//u:p@", 1)).js
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var streams natsconn.Streams
	for i := range 3 {
		refused, why := streams.Untaken(ended, js, fmt.Sprint("S", i), "s")
		if refused || !errors.Is(why, context.Canceled) {
			t.Errorf("stream %d: %t, %v", i, refused, why)
		}
	}
	if err := streams.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
