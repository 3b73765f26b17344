package expiry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"slices"
	"sync"
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
	// maxLooks bounds the servers behind a key that are looked at together.
	maxLooks = 8
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
// last days. Servers that cannot be reached are left to the parts that need them. Of the servers behind a key, Look
// takes maxLooks at once and leaves the others to the next call: silent producers delay no look at Redis.
func (b *Book) Look(ctx context.Context, now time.Time) {
	b.mu.Lock()
	all := b.servers
	b.mu.Unlock()
	var looks sync.WaitGroup
	for _, s := range all {
		for _, c := range s.dueLooks(now) {
			looks.Go(func() { s.look(ctx, c) })
		}
	}
	looks.Wait()
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
		if s.dial != nil && !last.Refused && last.EndsSoon(now.Add(lookAhead)) && len(due) < maxLooks &&
			now.Sub(last.Shown) >= pause && now.Sub(last.hello.looked) >= pause {
			last.hello.looked = now
			due = append(due, *last)
		}
	}
	return due
}

// look notes the certificates that the replicas behind the name of a server show now.
func (s *Servers) look(ctx context.Context, c shown) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	replicas := replicasOf(ctx, c.Holder)
	found := make([][]Certificate, len(replicas))
	var looks sync.WaitGroup
	for i, replica := range replicas {
		looks.Go(func() { found[i] = s.shownBy(ctx, replica, c) })
	}
	looks.Wait()
	s.noteAll(slices.Concat(found...), c.hello)
}

// lookupHost finds the addresses of a host. Tests have names of their own.
var lookupHost = net.DefaultResolver.LookupHost

// replicasOf are the addresses behind the name of a server, maxInTurn at most.
func replicasOf(ctx context.Context, server string) (all []string) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return []string{server}
	}
	found, err := lookupHost(ctx, host)
	if err != nil {
		return nil
	}
	for _, ip := range found[:min(len(found), maxInTurn)] {
		all = append(all, net.JoinHostPort(ip, port))
	}
	return all
}

// shownBy is the certificate that a replica shows now to the client that was shown the other one.
func (s *Servers) shownBy(ctx context.Context, replica string, c shown) []Certificate {
	raw, err := s.dial(ctx, replica)
	if err != nil {
		return nil
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
	return OfChain(s.key, c.Holder, chain, c.hello.roots)
}
