package expiry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"
)

const (
	// maxServers bounds the servers behind a key. Of more, the server that was met least recently is forgotten.
	maxServers = 512
	// forgetAfter is how long an ended certificate counts that no handshake shows: the server may be gone.
	forgetAfter = day
)

// Servers are the servers behind a key of the configuration, with their certificates. Servers is safe for concurrent
// use.
type Servers struct {
	key string
	mu  sync.Mutex
	// met has what the last handshake with each server has shown.
	met map[string]Certificate
}

// Handshake notes the result of a handshake with a server, or the error with which no connection came about. A
// certificate that is not verified has no end that matters.
func (s *Servers) Handshake(server string, state tls.ConnectionState, err error) {
	m := Certificate{Key: s.key, Holder: server, Shown: time.Now()}
	if err != nil {
		ended := Ended(err)
		if ended == nil {
			return
		}
		m.Refused = true
		m.timeOf(ended)
	} else if of := lastToEnd(state.VerifiedChains); of != nil {
		m.timeOf(of)
	} else {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met == nil {
		s.met = map[string]Certificate{}
	}
	s.met[server] = m
	if len(s.met) > maxServers {
		s.forgetOldest()
	}
}

// forgetOldest forgets the server that was met least recently. The caller holds the lock.
func (s *Servers) forgetOldest() {
	var oldest string
	for server, m := range s.met {
		if oldest == "" || m.Shown.Before(s.met[oldest].Shown) {
			oldest = server
		}
	}
	delete(s.met, oldest)
}

// certificates are the certificates that count now.
func (s *Servers) certificates(now time.Time) (all []Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for server, m := range s.met {
		if m.Left(now) < -forgetAfter && now.Sub(m.Shown) > forgetAfter {
			delete(s.met, server)
			continue
		}
		all = append(all, m)
	}
	return all
}

// lastToEnd is the certificate with which the last of the verified chains breaks; nil of none.
func lastToEnd(chains [][]*x509.Certificate) (last *x509.Certificate) {
	for _, chain := range chains {
		if first := firstToEnd(chain); last == nil || first != nil && first.NotAfter.After(last.NotAfter) {
			last = first
		}
	}
	return last
}

// Ended is the certificate whose end is the reason of an error; nil of another error.
func Ended(err error) *x509.Certificate {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil &&
		time.Now().After(invalid.Cert.NotAfter) {
		return invalid.Cert
	}
	return nil
}
