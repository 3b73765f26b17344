package publishtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

// Helpers for the tests of one broker, beside the suite.

// Ready waits until the publisher is ready.
func Ready(t testing.TB, p publish.Client) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "the publisher is ready", func() bool { return p.Ready() == nil })
}

// Close closes a publisher and fails the test when that takes longer than within.
func Close(t testing.TB, p publish.Client, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Logger writes into the test's own log.
func Logger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// Message is a message to an exchange and a key, with a name made of its number.
func Message(n int, exchange, key string) publish.Message {
	return publish.Message{
		Name: publish.Name{Producer: "orders", ID: fmt.Sprint(n)}, Exchange: exchange, RoutingKey: key,
		Body: fmt.Appendf(nil, "body of %d", n), DueAt: time.Unix(1_700_000_000, 0), Attempt: 1,
	}
}

// Messages are the messages of the numbers below n.
func Messages(n int, exchange, key string) []publish.Message {
	batch := make([]publish.Message, n)
	for i := range batch {
		batch[i] = Message(i, exchange, key)
	}
	return batch
}

// Publish publishes a batch and returns all results, in the order of the batch.
func Publish(ctx context.Context, p publish.Publisher, batch []publish.Message) []publish.Result {
	all := make([]publish.Result, len(batch))
	p.Publish(ctx, batch, func(places []int, results []publish.Result) {
		for n, i := range places {
			all[i] = results[n]
		}
	})
	return all
}

// PublishOne publishes one message.
func PublishOne(t testing.TB, p publish.Publisher, m publish.Message) publish.Result {
	t.Helper()
	return Publish(t.Context(), p, []publish.Message{m})[0]
}

// Expect fails the test when a result has another outcome.
func Expect(t testing.TB, results []publish.Result, want publish.Outcome) {
	t.Helper()
	for i, r := range results {
		if r.Outcome != want {
			t.Fatalf("message %d of %d is %v (%v), want %v; all: %v", i, len(results), r.Outcome, r.Cause, want, Count(results))
		}
		if (r.Cause == nil) != (want == publish.Acked) {
			t.Fatalf("message %d is %v with the cause %v", i, r.Outcome, r.Cause)
		}
	}
}

// Count counts outcomes.
func Count(results []publish.Result) map[publish.Outcome]int {
	counts := make(map[publish.Outcome]int)
	for _, r := range results {
		counts[r.Outcome]++
	}
	return counts
}

// SelfSigned makes a certificate for 127.0.0.1, also as files of the certificate and its key.
func SelfSigned(t testing.TB) (certificate tls.Certificate, certFile, keyFile string) {
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
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return certificate, write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", secret)
}
