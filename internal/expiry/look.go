package expiry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"time"
)

// A connection may stay open for longer than the certificate of its server lasts, and the server may have a new
// certificate meanwhile. So servers whose certificate is near its end are looked at anew, with a handshake that nothing
// follows.

const (
	// lookTimeout bounds a look.
	lookTimeout = 5 * time.Second
	// lookAhead is how long before a certificate is reported its server is looked at.
	lookAhead = time.Hour
)

// Dial connects to a server, up to where the handshake of TLS begins.
type Dial func(ctx context.Context, server string) (net.Conn, error)

// DialTLS reaches a server by its host and port whose connections begin with the handshake of TLS.
func DialTLS(ctx context.Context, server string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", server)
}

// DialNATS reaches a server of NATS, which sends a line before the handshake of TLS.
func DialNATS(ctx context.Context, server string) (net.Conn, error) {
	conn, err := DialTLS(ctx, server)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	for letter := []byte{0}; letter[0] != '\n'; {
		if _, err := io.ReadFull(conn, letter); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// hello is what a client says to a server to be shown the same certificate again, and the roots of its chains.
type hello struct {
	name, protocol string
	roots          *x509.CertPool
	// looked is when the server was last looked at.
	looked time.Time
}

func helloOf(state tls.ConnectionState) hello {
	h := hello{name: state.ServerName, protocol: state.NegotiatedProtocol, roots: x509.NewCertPool()}
	for _, chain := range state.VerifiedChains {
		h.roots.AddCert(chain[len(chain)-1])
	}
	return h
}

// Look looks anew at the servers whose certificate is near its end, and was not shown for a day, or for an hour on the
// last days. Servers that cannot be reached are left to the parts that need them.
func (b *Book) Look(ctx context.Context, now time.Time) {
	b.mu.Lock()
	all := b.servers
	b.mu.Unlock()
	for _, s := range all {
		for _, c := range s.dueLooks(now) {
			s.look(ctx, c)
		}
	}
}

// dueLooks are the certificates whose servers are to be looked at.
func (s *Servers) dueLooks(now time.Time) (due []shown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.met {
		last := &of[0]
		pause := day
		if last.Left(now) < 2*day {
			pause = time.Hour
		}
		if s.dial != nil && !last.Refused && last.EndsSoon(now.Add(lookAhead)) &&
			now.Sub(last.Shown) >= pause && now.Sub(last.hello.looked) >= pause {
			last.hello.looked = now
			due = append(due, *last)
		}
	}
	return due
}

// look notes the certificate that a server shows now.
func (s *Servers) look(ctx context.Context, c shown) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	raw, err := s.dial(ctx, c.Holder)
	if err != nil {
		return
	}
	defer raw.Close()
	var chain []*x509.Certificate
	config := &tls.Config{
		ServerName: c.hello.name, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent, and an ended certificate is to be seen
		VerifyConnection: func(state tls.ConnectionState) error {
			chain = state.PeerCertificates
			return nil
		},
	}
	if c.hello.protocol != "" {
		config.NextProtos = []string{c.hello.protocol}
	}
	// A server that wants a certificate of its client ends the handshake afterwards.
	_ = tls.Client(raw, config).HandshakeContext(ctx)
	for _, now := range OfChain(s.key, c.Holder, chain, c.hello.roots) {
		now.Shown = time.Now()
		s.note(shown{Certificate: now, hello: c.hello})
	}
}
