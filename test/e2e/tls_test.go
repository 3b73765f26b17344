package e2e

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// secured is a world in which every client shows a certificate.
type secured struct {
	*world
	*certstest.Authority
	// certFile and keyFile belong to the coordinator's certificate.
	certFile, keyFile string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{world: newWorld(t), Authority: certstest.NewAuthority(t)}
	s.certFile, s.keyFile = s.Issue("127.0.0.1")
	s.startCoordinators(1,
		"MSGHANDLER_GRPC_TLS_CERT="+s.certFile, "MSGHANDLER_GRPC_TLS_KEY="+s.keyFile, "MSGHANDLER_GRPC_TLS_CLIENT_CA="+s.File,
		"MSGHANDLER_ACCESS_ADMINS=dns:*.ops.shop", "MSGHANDLER_GRPC_CALLERS=dns:{producer}.shop",
		"MSGHANDLER_CALLBACKS_TLS=true", "MSGHANDLER_CALLBACKS_TLS_CA="+s.File,
		"MSGHANDLER_CALLBACKS_TLS_CERT="+s.certFile, "MSGHANDLER_CALLBACKS_TLS_KEY="+s.keyFile)
	if _, err := s.channel().QueueDeclare("secured", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// producer serves a producer with the certificate from shown, which calls with a certificate for names.
func (s *secured) producer(name string, shown func() (*tls.Certificate, error), names ...string) *producer.Producer {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	p, err := producer.New(producer.Config{
		Name: name, Coordinator: s.targets(), CallbackTarget: listener.Addr().String(), Markers: memory.New(),
		TLS: s.Client(names...), SendTimeout: 10 * time.Second,
		Coordinators: producer.Coordinators{Tokens: []string{shopToken}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	config := s.Server("127.0.0.1")
	config.Certificates = nil
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown() }
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	p.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	s.t.Cleanup(func() {
		_ = p.Close(s.t.Context())
		server.Stop()
		serving.Wait()
	})
	return p
}

// asks runs an admin command with a certificate for a name; none with none.
func (s *secured) asks(name string, args ...string) (output string, status int) {
	s.t.Helper()
	env := []string{"MSGHANDLER_SERVER=" + s.coordinators[0].grpc, "MSGHANDLER_TLS_CA=" + s.File}
	if name != "" {
		certFile, keyFile := s.Issue(name)
		env = append(env, "MSGHANDLER_TLS_CERT="+certFile, "MSGHANDLER_TLS_KEY="+keyFile)
	}
	return programs.Run(s.t, "msghandler", env, args...)
}

// A message goes all its way between parties with certificates; a party without a certificate, or with another's, is
// refused. A producer with a bad certificate is out of reach: its message waits, at no cost, until the producer has a
// better certificate.
func TestEachPartyNeedsACertificate(t *testing.T) {
	s := newSecured(t)
	good, bad := s.Server("127.0.0.1").Certificates[0], s.Server("10.0.0.1").Certificates[0]
	var mu sync.Mutex
	now := &bad
	orders := s.producer("orders", func() (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		return now, nil
	}, "orders.shop")
	nothing := func(context.Context) error { return nil }
	commits := func(id string) producer.Message {
		return producer.Message{ID: id, RoutingKey: "secured", Body: []byte(id)}
	}
	if err := orders.Send(t.Context(), commits("1"), nothing); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, 30*time.Second, "the message waits for a producer with a good certificate", func() bool {
		said, _ := s.asks("anna.ops.shop", "show", "orders/1")
		return strings.Contains(said, "pending") && strings.Contains(said, "certificate is valid for 10.0.0.1, not 127.0.0.1")
	})
	if said, _ := s.asks("anna.ops.shop", "show", "orders/1"); !strings.Contains(said, "confirm attempts   0") {
		t.Errorf("the refusal cost an attempt:\n%s", said)
	}
	mu.Lock()
	now = &good
	mu.Unlock()
	if got := s.get(s.channel(), "secured"); string(got.Body) != "1" {
		t.Errorf("got %q", got.Body)
	}

	stranger := s.producer("orders", func() (*tls.Certificate, error) { return &good, nil }, "stock.shop")
	err := stranger.Send(t.Context(), commits("2"), nothing)
	if err == nil ||
		!strings.Contains(err.Error(), `PermissionDenied: certificate dns:stock.shop may not call as producer "orders"`) {
		t.Errorf("another producer stored a message of orders: %v", err)
	}
	for name, c := range map[string]struct {
		status int
		want   string
	}{
		"anna.ops.shop": {0, "sendable"},
		"orders.shop":   {1, "may not use GetStats of the admin API with the role none"},
		"":              {1, "--tls"}, // the reason arrives or not, depending on timing
	} {
		if said, status := s.asks(name, "stats"); status != c.status || !strings.Contains(said, c.want) {
			t.Errorf("%q: got %d:\n%s", name, status, said)
		}
	}
	said, status := s.run("stats")
	if status != 1 || !strings.Contains(said, "--tls") {
		t.Errorf("the advice for a client without TLS (%d):\n%s", status, said)
	}
	if said, _ := s.asks("anna.ops.shop", "doctor", "--tls-name=elsewhere", "--redis.url="+s.redis.URL(),
		"--amqp.url="+s.amqp); !strings.Contains(said, "talk to it as it wants: --tls") {
		t.Errorf("the doctor does not report the wrong TLS name:\n%s", said)
	}
	if said, status := programs.Run(t, "msghandler", []string{"MSGHANDLER_TLS=yes"}, "stats"); status != 2 ||
		!strings.Contains(said, "neither true nor false") {
		t.Errorf("got %d:\n%s", status, said)
	}
	// The console asks for no certificate, and is no way around the admins.
	if page := s.page("/change?action=discard&all=1&state=dead"); !strings.Contains(page, "needs the role admin") ||
		!strings.Contains(page, "Read-only, without headers and bodies") {
		t.Errorf("the console lets a stranger discard messages:\n%s", page)
	}
	said, status = s.asks("anna.ops.shop", "doctor", "--redis.url="+s.redis.URL(), "--amqp.url="+s.amqp)
	if !strings.Contains(said, "refused calls of producer orders") {
		t.Errorf("the doctor does not report the refused producer (%d):\n%s", status, said)
	}
}

// Certificates are renewed by putting others in their place; nothing is restarted.
func TestCertificateRenewalNeedsNoRestart(t *testing.T) {
	s := newSecured(t)
	shown := func() string {
		conn, err := tls.Dial("tcp", s.coordinators[0].grpc, s.Client("orders.shop"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first := shown()
	s.Renew(s.certFile, s.keyFile, "127.0.0.1")
	servers.Eventually(t, 30*time.Second, "the new certificate is shown", func() bool { return shown() != first })
	if err := os.WriteFile(s.certFile, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	second := shown()
	servers.Eventually(t, 30*time.Second, "the log calls the certificate no good", func() bool {
		if shown() != second {
			t.Fatal("a bad certificate replaced a good certificate")
		}
		return strings.Contains(s.coordinators[0].Tail(), "changed certificates are unusable")
	})
	if !pageHolds(t, s.coordinators[0], "/metrics",
		`msghandler_certificate_expires_timestamp_seconds{key="grpc.tls_cert"}`) {
		t.Error("the metrics do not tell the end of the certificate")
	}
	s.coordinators[0].Stop(20 * time.Second)
}
