package kafka_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/kafka"
	"github.com/msghandler/msghandler/test/servers"
)

func TestBadURLErrorHidesTheURL(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"http://u:hunter2@h/", "kafka://u:hunter/2@h", "kafka://u:hunter2@h:port", "kafka://u:hunter2@h?sasl=hunter2",
		"kafka://h?tls=true&ca=/no/such/file", "", "kafka://hunter2@h?sasl=plain",
	} {
		p, err := kafka.New(kafka.Config{URL: bad}.WithDefaults())
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
		expect(t, publish(t.Context(), p, messages(1, "t", "k")), halfmsg.Acked)
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
	r := publish(t.Context(), p, messages(1, "t", "k"))[0]
	if r.Outcome != halfmsg.Unsent || !errors.Is(r.Cause, kafka.ErrDisconnected) ||
		strings.Contains(r.Cause.Error(), "hunter2") {
		t.Errorf("with a wrong password: %v", r)
	}
}

func TestPublishesOverTLS(t *testing.T) {
	t.Parallel()
	certificate, file := selfSigned(t)
	k := plain(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}))
	if err := k.Fake.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"?tls=true&ca=" + url.QueryEscape(file), "?tls=true&skip_verify=true"} {
		p := publisher(t, k.URL("", query), 10*time.Second)
		expect(t, publish(t.Context(), p, messages(10, "t", "k")), halfmsg.Acked)
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
	certificate, file := selfSigned(t)
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
	next, nextFile := selfSigned(t)
	if err := os.Rename(nextFile, file); err != nil {
		t.Fatal(err)
	}
	shown.Store(&next)
	k.Cut()()
	servers.Eventually(t, 20*time.Second, "the cluster answers with its new certificate", answers)
}

// selfSigned makes a certificate for 127.0.0.1 and the file that vouches for it.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
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
		t.Errorf("of its topics it says %v", health.Exchanges)
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
			return publish(t.Context(), p, messages(1, "t", "k"))[0].Outcome == halfmsg.Acked
		})
		resume := k.Hang()
		for _, r := range publish(t.Context(), p, messages(50, "t", "k")) {
			if r.Outcome == halfmsg.Acked {
				t.Error("acknowledged by a cluster that nothing reaches")
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
			return !strings.Contains(stacks, "publish/kafka.(*") && !strings.Contains(stacks, "kafkaconn.(*Producer)")
		})
	}
}
