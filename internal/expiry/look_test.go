package expiry_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/expiry"
	"github.com/msghandler/msghandler/test/must"
)

// serveTLS serves handshakes of TLS, with the certificate that is present at that time, after a preamble.
func serveTLS(t *testing.T, preamble string, config *tls.Config, present *atomic.Pointer[issued]) (addr string) {
	t.Helper()
	return serveTLSAt(t, "127.0.0.1:0", preamble, config, present)
}

func serveTLSAt(
	t *testing.T, at, preamble string, config *tls.Config, present *atomic.Pointer[issued],
) (addr string) {
	t.Helper()
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c := present.Load()
		return &tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: c.key}, nil
	}
	listener, err := net.Listen("tcp", at)
	must.Succeed(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, preamble)
			_ = tls.Server(conn, config).Handshake()
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// A connection stays open while its server gets a new certificate.
func TestRenewedCertificateIsSeenBehindConnection(t *testing.T) {
	t.Parallel()
	wantsCertificate := &tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12}
	for what, c := range map[string]struct {
		preamble string
		dial     expiry.Dial
		config   *tls.Config
	}{
		"TLS":                       {dial: expiry.DialTLS, config: &tls.Config{}},
		"a certificate of clients":  {dial: expiry.DialTLS, config: wantsCertificate},
		"TLS after a line, as NATS": {preamble: "INFO {}\r\n", dial: expiry.DialNATS, config: &tls.Config{}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			root := issue(t, "root", 900*day, nil, nil)
			old, renewed := issue(t, "leaf", 20*day, root, nil), issue(t, "leaf", 200*day, root, nil)
			var present atomic.Pointer[issued]
			present.Store(old)
			server := serveTLS(t, c.preamble, c.config, &present)
			var b expiry.Book
			b.Servers("k", c.dial).Handshake(server, tls.ConnectionState{
				VerifiedChains: [][]*x509.Certificate{{old.Certificate, root.Certificate}},
			}, nil)
			ends := func() time.Time { return b.Soonest(time.Now())["k"].Ends }
			present.Store(renewed)
			now := time.Now()
			if b.Look(t.Context(), now.Add(23*time.Hour)); !ends().Equal(old.NotAfter) {
				t.Error("the server was looked at within a day")
			}
			if b.Look(t.Context(), now.Add(25*time.Hour)); !ends().Equal(renewed.NotAfter) {
				t.Errorf("the certificate ends at %v, want the end of the new one", ends())
			}
			present.Store(old)
			if b.Look(t.Context(), now.Add(99*time.Hour)); !ends().Equal(renewed.NotAfter) {
				t.Error("a server whose certificate lasts was looked at")
			}
		})
	}
}

// A server that is away is looked at as rarely as one that answers.
func TestAwayServerIsLookedAtRarely(t *testing.T) {
	t.Parallel()
	var dialled int // by one look at a time
	var b expiry.Book
	servers := b.Servers("k", func(context.Context, string) (net.Conn, error) {
		dialled++
		return nil, io.EOF
	})
	last := &x509.Certificate{NotBefore: time.Now().Add(-90 * day), NotAfter: time.Now().Add(30 * time.Hour)}
	servers.Handshake("127.0.0.1:1", tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{last}}}, nil)
	for minutes := range 10 * 60 {
		b.Look(t.Context(), time.Now().Add(time.Duration(minutes)*time.Minute))
	}
	if dialled != 9 {
		t.Errorf("dialled %d times in 10 hours, want once an hour", dialled)
	}
}

// Of two replicas behind a name, one has a new certificate, and the other will refuse connections.
func TestLookSeesEachReplica(t *testing.T) {
	root := issue(t, "root", 900*day, nil, nil)
	var old, renewed atomic.Pointer[issued]
	old.Store(issue(t, "leaf", 20*day, root, nil))
	renewed.Store(issue(t, "leaf", 200*day, root, nil))
	_, port, err := net.SplitHostPort(serveTLS(t, "", &tls.Config{}, &old))
	must.Succeed(t, err)
	serveTLSAt(t, "127.0.0.2:"+port, "", &tls.Config{}, &renewed)
	expiry.HostsAre(t, map[string][]string{"orders": {"127.0.0.1", "127.0.0.2"}})
	var b expiry.Book
	b.Servers("k", expiry.DialTLS).Handshake("orders:"+port, tls.ConnectionState{
		VerifiedChains: [][]*x509.Certificate{{old.Load().Certificate, root.Certificate}},
	}, nil)
	b.Look(t.Context(), time.Now().Add(25*time.Hour))
	var ends []time.Time
	for _, c := range b.All(time.Now()) {
		ends = append(ends, c.Ends)
	}
	if len(ends) != 2 || !ends[0].Equal(old.Load().NotAfter) || !ends[1].Equal(renewed.Load().NotAfter) {
		t.Errorf("the certificates in use end at %v", ends)
	}
}

func TestSilentProducersDelayNoOtherLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b expiry.Book
		var mu sync.Mutex
		var at, most, looked int
		silent := b.Servers("producers", func(ctx context.Context, _ string) (net.Conn, error) {
			mu.Lock()
			at++
			looked, most = looked+1, max(most, at)
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			at--
			mu.Unlock()
			return nil, ctx.Err()
		})
		var redis int
		answering := b.Servers("redis.url", func(context.Context, string) (net.Conn, error) {
			redis++
			return nil, io.EOF
		})
		last := &x509.Certificate{NotBefore: time.Now().Add(-90 * day), NotAfter: time.Now().Add(10 * day)}
		state := tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{last}}}
		const producers = 512
		for n := range producers {
			silent.Handshake(fmt.Sprintf("127.0.%d.%d:1", n/250, n%250+1), state, nil)
		}
		answering.Handshake("127.0.0.1:6379", state, nil)
		begun := time.Now()
		if b.Look(t.Context(), begun.Add(25*time.Hour)); redis != 1 || time.Since(begun) > 10*time.Second {
			t.Errorf("Redis was looked at %d times in a pass of %v", redis, time.Since(begun))
		}
		for range producers {
			b.Look(t.Context(), begun.Add(25*time.Hour))
		}
		if looked != producers || most > 8 {
			t.Errorf("looked at %d of %d producers, %d at once", looked, producers, most)
		}
	})
}

// Replicas behind one name show an old certificate and a new one in turn: the old one is in use.
func TestCertificatesInTurnBothCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b expiry.Book
		servers, begun := b.Servers("producers", nil), time.Now()
		show := func(days int) {
			c := &x509.Certificate{NotBefore: begun.Add(-100 * day), NotAfter: begun.Add(time.Duration(days) * day)}
			servers.Handshake("orders:9000", tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{c}}}, nil)
			time.Sleep(time.Minute)
		}
		first := func() time.Duration { return b.Soonest(time.Now())["producers"].Ends.Sub(begun) / day }
		show(5)
		if show(90); first() != 90 {
			t.Error("the certificate before counts, which was renewed")
		}
		for range 3 {
			if show(5); first() != 5 {
				t.Error("the certificate that came last does not count")
			}
			if show(90); first() != 5 {
				t.Error("a certificate that replicas show in turn does not count")
			}
		}
		time.Sleep(2 * time.Hour)
		if show(90); first() != 90 {
			t.Error("a certificate counts that was not shown for hours")
		}
	})
}

// Most authorities of a bundle are not in use, and one of them always ends soon.
func TestBundlesOfAuthoritiesAreLeftOut(t *testing.T) {
	t.Parallel()
	var bundle []*x509.Certificate
	for n := range 100 {
		bundle = append(bundle, &x509.Certificate{NotAfter: time.Now().Add(time.Duration(n+1) * day)})
	}
	if got := expiry.OfAuthorities("k", "ca-certificates.crt", bundle, time.Now()); len(got) > 0 {
		t.Errorf("got %+v", got)
	}
}
