package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// quick is a configuration whose patience fits a test.
func quick(url string) rabbitmq.Config {
	return rabbitmq.Config{
		URL: url, ConfirmTimeout: 2 * time.Second, Heartbeat: time.Second, WriteTimeout: 500 * time.Millisecond,
	}
}

// recovers fails the test unless messages are acknowledged again without anybody's help.
func recovers(t *testing.T, p *rabbitmq.Publisher) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "messages are acknowledged again", func() bool {
		return outcome(t, p, message(-1, "e", "k")).Outcome == publish.Acked
	})
	expect(t, publishAll(t.Context(), p, messages(100, "e", "k")), publish.Acked)
}

// TestBrokerFaults hurts a broker of its own in several ways, one after the other.
func TestBrokerFaults(t *testing.T) {
	broker := servers.PrivateRabbitMQ(t)
	d := declare(t, broker.URL)
	d.exchange("e")
	// On a single node of RabbitMQ 3.10 a quorum queue may stay without a leader after a kill.
	d.queue("q", "e", "k", nil)

	t.Run("all connections are closed", func(t *testing.T) {
		p := publisher(t, quick(broker.URL))
		load := startLoad(t, p)
		load.enough()
		broker.Ctl("close_all_connections", "a test")
		load.enough()
		load.stop()
		recovers(t, p)
	})
	t.Run("a memory alarm", func(t *testing.T) { memoryAlarm(t, broker) })
	t.Run("a disk alarm with the network's buffers full", func(t *testing.T) { diskAlarm(t, broker) })
	t.Run("a queue that does not confirm", func(t *testing.T) { stalledQueue(t, broker) })
	t.Run("a queue of a headers exchange that does not confirm", func(t *testing.T) { stalledHeaderKind(t, broker) })
	t.Run("killed with messages on their way", func(t *testing.T) { killed(t, broker) })
}

func memoryAlarm(t *testing.T, broker *servers.RabbitServer) {
	p, other := publisher(t, quick(broker.URL)), publisher(t, quick(broker.URL))
	recovers(t, p)
	broker.Ctl("set_vm_memory_high_watermark", "absolute", "1")
	defer broker.Ctl("set_vm_memory_high_watermark", "absolute", "1GB")

	servers.Eventually(t, 20*time.Second, "the publisher knows of the alarm", func() bool {
		for _, r := range publishAll(t.Context(), p, messages(10, "e", "k")) {
			if r.Outcome == publish.Refused {
				t.Errorf("refused: %v", r.Cause)
			}
		}
		return errors.Is(p.Ready(), publish.ErrBlocked)
	})
	began := time.Now()
	results := publishAll(t.Context(), p, messages(1000, "e", "k"))
	expect(t, results, publish.Unsent)
	if took := time.Since(began); took > 500*time.Millisecond || !errors.Is(results[0].Cause, publish.ErrBlocked) {
		t.Errorf("the publish took %v to hear %v", took, results[0].Cause)
	}

	answers := make(chan []publish.Result)
	go func() { answers <- publishAll(t.Context(), other, messages(10, "e", "k")) }()
	servers.Eventually(t, 10*time.Second, "the other publisher knows, too", func() bool {
		return errors.Is(other.Ready(), publish.ErrBlocked)
	})
	began = time.Now()
	closePublisher(t, other, 10*time.Second)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("to close under an alarm took %v", took)
	}
	if counts := count(<-answers); counts[publish.Unsure] == 0 || counts[publish.Unsure]+counts[publish.Unsent] != 10 {
		t.Errorf("closed under an alarm: %v", counts)
	}

	broker.Ctl("set_vm_memory_high_watermark", "absolute", "1GB")
	ready(t, p)
	expect(t, publishAll(t.Context(), p, messages(100, "e", "k")), publish.Acked) // no route stalls
}

// diskAlarm sends more than the network's buffers hold before the alarm is known: the write hangs, and must be freed.
func diskAlarm(t *testing.T, broker *servers.RabbitServer) {
	config := quick(broker.URL)
	config.ConfirmTimeout = 20 * time.Second
	p := publisher(t, config)
	recovers(t, p)
	broker.Ctl("set_disk_free_limit", "1000000GB")
	defer broker.Ctl("set_disk_free_limit", "100MB")
	big := messages(200, "e", "k")
	body := make([]byte, 1<<20)
	for i := range big {
		big[i].Body = body
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	answers := make(chan []publish.Result)
	go func() { answers <- publishAll(ctx, p, big) }()
	servers.Eventually(t, 20*time.Second, "the publisher is not ready", func() bool { return p.Ready() != nil })
	broker.Ctl("set_disk_free_limit", "100MB")
	counts := count(<-answers)
	if counts[publish.Refused] > 0 || time.Since(began) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(began), counts)
	}
	recovers(t, p)
}

func killed(t *testing.T, broker *servers.RabbitServer) {
	x := wire.TCP(t, wire.Host(t, broker.URL))
	config := quick(x.URL(broker.URL))
	config.ConfirmTimeout = 20 * time.Second
	p := publisher(t, config)
	load := startLoad(t, p)
	load.enough()
	acked := load.stop()

	// Messages are in doubt when the broker dies before the answer.
	broker.Freeze()
	before := x.Received()
	answers := make(chan []publish.Result)
	go func() { answers <- publishAll(t.Context(), p, messages(100, "e", "k")) }()
	servers.Eventually(t, 10*time.Second, "the messages are on their way", func() bool {
		return x.Received() > before+5000
	})
	broker.Kill()
	counts := count(<-answers)
	if counts[publish.Unsure] == 0 || counts[publish.Unsure]+counts[publish.Unsent] != 100 {
		t.Errorf("killed with 100 on their way: %v", counts)
	}
	servers.Eventually(t, 10*time.Second, "the loss is known", func() bool {
		return errors.Is(p.Ready(), publish.ErrDisconnected)
	})
	expect(t, publishAll(t.Context(), p, messages(100, "e", "k")), publish.Unsent)

	broker.Start()
	recovers(t, p)
	kept := map[string]bool{}
	expect(t, []publish.Result{outcome(t, p, last())}, publish.Acked)
	declare(t, broker.URL).drain("q", lastID, kept)
	for _, id := range acked {
		if !kept[id] {
			t.Fatalf("%s was acknowledged and is lost", id)
		}
	}
}

func TestHalfOpenConnectionIsClosed(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	x := wire.TCP(t, wire.Host(t, url))
	p := publisher(t, quick(x.URL(url)))
	recovers(t, p)

	x.Hold()
	began := time.Now()
	results := publishAll(t.Context(), p, messages(100, "e", "k"))
	expect(t, results, publish.Unsure)
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the publish took %v", took)
	}
	servers.Eventually(t, 15*time.Second, "the connection is given up", func() bool {
		return errors.Is(p.Ready(), publish.ErrDisconnected)
	})
	x.Restore()
	recovers(t, p)
}

// The heartbeat would find out after 15 s, the confirm timeout after 20 s.
func TestHangingWriteEndsConnection(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	x := wire.TCP(t, wire.Host(t, url))
	p := publisher(t, rabbitmq.Config{
		URL: x.URL(url), ConfirmTimeout: 20 * time.Second, WriteTimeout: 500 * time.Millisecond,
	})
	recovers(t, p)

	x.Hold()
	batch := messages(100, "e", "k")
	body := make([]byte, 1<<20)
	for i := range batch {
		batch[i].Body = body
	}
	began := time.Now()
	counts := count(publishAll(t.Context(), p, batch))
	if took := time.Since(began); took > 8*time.Second || counts[publish.Unsure]+counts[publish.Unsent] != len(batch) {
		t.Errorf("after %v: %v", took, counts)
	}
	x.Restore()
	recovers(t, p)
}

func TestSentMessageOutlivesItsContext(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	x := wire.TCP(t, wire.Host(t, url))
	p := publisher(t, rabbitmq.Config{URL: x.URL(url)})
	recovers(t, p)

	x.Hold()
	before := x.Received()
	ctx, cancel := context.WithCancel(t.Context())
	answers := make(chan []publish.Result)
	go func() { answers <- publishAll(ctx, p, messages(1, "e", "k")) }()
	servers.Eventually(t, 10*time.Second, "the message is on its way", func() bool { return x.Received() > before+50 })
	cancel()
	x.Restore()
	expect(t, <-answers, publish.Acked)
}

func TestFailoverToNextNodeHidesPasswords(t *testing.T) {
	t.Parallel()
	good := servers.RabbitMQ(t).URL
	d := declare(t, good)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	wrong := strings.Replace(good, "guest:guest", "guest:hunter2", 1)
	log := &servers.Log{}
	p, err := rabbitmq.New(rabbitmq.Config{
		URL:    "amqp://guest:hunter2@127.0.0.1:1/," + wrong,
		Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, 10*time.Second, "the broker's refusal is told", func() bool {
		return strings.Contains(p.Ready().Error(), "ACCESS_REFUSED") || strings.Contains(p.Ready().Error(), "403")
	})
	r := outcome(t, p, message(1, "e", "k"))
	if r.Outcome != publish.Unsent || !errors.Is(r.Cause, publish.ErrDisconnected) {
		t.Errorf("got %v", r)
	}
	closePublisher(t, p, 5*time.Second)
	told := log.String() + r.Cause.Error()
	if strings.Contains(told, "hunter2") || !strings.Contains(told, "127.0.0.1:1") {
		t.Errorf("told: %s", told)
	}

	recovers(t, publisher(t, rabbitmq.Config{URL: "amqp://127.0.0.1:1/," + wrong + "," + good}))
}

func TestBadURLErrorHidesTheURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"http://u:hunter2@h/", "amqp://u:hunter/2@h/", "amqp://u:hunter2@h:port/", "amqp://u:hunter2 @h", "", "embedded:",
	} {
		p, err := rabbitmq.New(rabbitmq.Config{URL: "amqp://good/," + bad})
		switch {
		case err == nil:
			t.Errorf("%q was taken", bad)
			closePublisher(t, p, time.Second)
		case strings.Contains(err.Error(), "hunter"), !strings.Contains(err.Error(), "URL 2"):
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := rabbitmq.New(rabbitmq.Config{}); err == nil {
		t.Error("no URL at all was taken")
	}
}

func TestPublishesOverTLS(t *testing.T) {
	t.Parallel()
	plain := servers.RabbitMQ(t).URL
	d := declare(t, plain)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	certificate, file, _ := publishtest.SelfSigned(t)
	through := wire.TLS(t, wire.Host(t, plain), certificate).URL(plain)
	secure := strings.Replace(through, "amqp://", "amqps://", 1)
	seen := publishtest.Handshakes{}
	recovers(t, publisher(t, rabbitmq.Config{
		URL: secure + "?cacertfile=" + url.QueryEscape(file), Handshake: seen.Note,
	}))
	seen.Expect(t, wire.Host(t, through))

	distrustful, err := rabbitmq.New(rabbitmq.Config{URL: secure})
	if err != nil {
		t.Fatal(err)
	}
	defer closePublisher(t, distrustful, 5*time.Second)
	servers.Eventually(t, 10*time.Second, "a certificate of an unknown authority is refused", func() bool {
		return strings.Contains(distrustful.Ready().Error(), "certificate")
	})
}
