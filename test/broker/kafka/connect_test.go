package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka"
	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
)

func TestBadURLErrorHidesTheURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"http://u:hunter2@h/", "kafka://u:hunter/2@h", "kafka://u:hunter2@h:port", "kafka://u:hunter2@h?sasl=hunter2",
		"kafka://h?tls=true&ca=/no/such/file", "", "kafka://hunter2@h?sasl=plain",
	} {
		p, err := kafka.New(kafka.Config{URL: bad})
		switch {
		case err == nil:
			t.Errorf("%q was taken", bad)
			closePublisher(t, p, time.Second)
		case strings.Contains(err.Error(), "hunter"):
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestEachLoginIsUsed(t *testing.T) {
	t.Parallel()
	k := plain(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "a", "s"), kfake.Superuser("SCRAM-SHA-256", "b", "s"),
		kfake.Superuser("SCRAM-SHA-512", "c", "s"))
	if err := k.Fake.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	for login, query := range map[string]string{
		"a:s@": "", "b:s@": "?sasl=scram-sha-256", "c:s@": "?sasl=scram-sha-512",
	} {
		p := publisher(t, k.URL(login, query), 10*time.Second)
		expect(t, publishAll(t.Context(), p, messages(1, "t", "k")), publish.Acked)
	}
	p := open(t, k.URL("a:hunter2@", ""), 10*time.Second)
	defer closePublisher(t, p, 10*time.Second)
	told := func(what string) {
		t.Helper()
		servers.Eventually(t, 10*time.Second, "the cluster's refusal is told", func() bool {
			return strings.Contains(p.Ready().Error(), what)
		})
	}
	told("check user, password, sasl and tls") // kfake closes the connection
	fault := k.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1,
	})
	defer fault.Remove()
	told("SASL_AUTHENTICATION_FAILED")
	r := publishAll(t.Context(), p, messages(1, "t", "k"))[0]
	if r.Outcome != publish.Unsent || !errors.Is(r.Cause, publish.ErrDisconnected) ||
		strings.Contains(r.Cause.Error(), "hunter2") {
		t.Errorf("with a wrong password: %v", r)
	}
}

func TestPublishesOverTLS(t *testing.T) {
	t.Parallel()
	certificate, file, _ := publishtest.SelfSigned(t)
	k := plain(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	if err := k.Fake.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	seen := publishtest.Handshakes{}
	trusting, err := kafka.New(kafka.Config{URL: k.URL("", "?tls=true&ca="+url.QueryEscape(file)), Handshake: seen.Note})
	if err != nil {
		t.Fatal(err)
	}
	defer closePublisher(t, trusting, 10*time.Second)
	ready(t, trusting)
	seen.Expect(t, "")
	for _, query := range []string{"?tls=true&ca=" + url.QueryEscape(file), "?tls=true&skip_verify=true"} {
		p := publisher(t, k.URL("", query), 10*time.Second)
		expect(t, publishAll(t.Context(), p, messages(10, "t", "k")), publish.Acked)
	}
	distrustful := open(t, k.URL("", "?tls=true"), 10*time.Second)
	defer closePublisher(t, distrustful, 10*time.Second)
	servers.Eventually(t, 10*time.Second, "a certificate of an unknown authority is refused", func() bool {
		return strings.Contains(distrustful.Ready().Error(), "certificate")
	})
}

// Certificates are replaced while a client lives: its next connection trusts the authority that the file has by then.
func TestReplacedAuthorityIsReadAnew(t *testing.T) {
	t.Parallel()
	certificate, file, _ := publishtest.SelfSigned(t)
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&certificate)
	k := plain(t, kfake.TLS(&tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil },
	}))
	cluster, err := address.ParseKafka(k.URL("", "?tls=true&ca="+url.QueryEscape(file)))
	if err != nil {
		t.Fatal(err)
	}
	options, err := kafkaconn.Config{Address: cluster, Name: "test", AnswerTimeout: time.Second}.Options()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	answers := func() bool { return client.Ping(t.Context()) == nil }
	servers.Eventually(t, 10*time.Second, "the cluster answers", answers)
	next, nextFile, _ := publishtest.SelfSigned(t)
	if err := os.Rename(nextFile, file); err != nil {
		t.Fatal(err)
	}
	shown.Store(&next)
	k.Cut()()
	servers.Eventually(t, 20*time.Second, "the cluster answers with its new certificate", answers)
}

func TestExamineFindsMissingTopics(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("there", nil)
	health, err := kafka.Examine(t.Context(), kafka.Config{URL: k.URL("", "")}, "there", "nowhere", "nowhere")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(health.Server, "Kafka ") || health.Trouble != nil {
		t.Errorf("a healthy cluster is %+v", health)
	}
	if len(health.Exchanges) != 1 || health.Exchanges["nowhere"] == nil {
		t.Errorf("the publisher says of its topics %v", health.Exchanges)
	}
	defer k.Cut()()
	if _, err := kafka.Examine(t.Context(), kafka.Config{URL: k.URL("", "")}); err == nil {
		t.Error("a cluster out of reach is healthy")
	}
}

// Invariant: after Close no goroutine of the publisher runs, also with messages in flight. The client's own goroutines
// may still be closing sockets. The test is not parallel, so no other publisher runs in the process.
func TestCloseWaitsForEveryGoroutine(t *testing.T) {
	k := plain(t)
	k.Topic("t", nil)
	for round := range 6 {
		p := open(t, k.URL("", ""), 500*time.Millisecond)
		ready(t, p)
		servers.Eventually(t, 30*time.Second, "messages are acknowledged", func() bool {
			return publishAll(t.Context(), p, messages(1, "t", "k"))[0].Outcome == publish.Acked
		})
		resume := k.Hang()
		for _, r := range publishAll(t.Context(), p, messages(50, "t", "k")) {
			if r.Outcome == publish.Acked {
				t.Error("acknowledged by an unreachable cluster")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if round%2 == 0 {
			cancel() // Close closes the connections at once
		}
		_ = p.Close(ctx) // an error says that the context has ended
		cancel()
		resume()
		buffer := make([]byte, 1<<20)
		// The last one may have done its work, and still be on its way out.
		servers.Eventually(t, 5*time.Second, fmt.Sprintf("no goroutine is left of round %d", round), func() bool {
			stacks := string(buffer[:runtime.Stack(buffer, true)])
			return !strings.Contains(stacks, "broker/kafka.(*") && !strings.Contains(stacks, "ground/publish.(*") &&
				!strings.Contains(stacks, "kafkaconn.(*Producer)")
		})
	}
}
