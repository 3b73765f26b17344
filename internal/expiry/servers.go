package expiry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// maxServers bounds the servers behind a key. Of more, the server that was met least recently is forgotten.
	maxServers = 512
	// forgetAfter is how long an ended certificate counts that no handshake shows: the server may be gone.
	forgetAfter = day
	// inTurn is for how long a certificate counts that replicas behind one name show in turn with others.
	inTurn = time.Hour
	// maxInTurn bounds the certificates of a server that are remembered.
	maxInTurn = 8
)

// Servers are the servers behind a key of the configuration, with their certificates. Servers is safe for concurrent
// use.
type Servers struct {
	key string
	// dial reaches a server for another look at its certificate; nil: no other look.
	dial Dial
	mu   sync.Mutex
	// met has what the handshakes with each server have shown lately, the last handshake first.
	met map[string][]shown
}

// shown is a certificate that a server has shown.
type shown struct {
	Certificate
	// returned says that the certificate came again after another one: replicas show both in turn.
	returned bool
	hello    hello
}

// Handshake notes the result of a handshake with a server, or the error with which no connection came about. A
// certificate that is not verified has no end that matters.
func (s *Servers) Handshake(server string, state tls.ConnectionState, err error) {
	c := shown{Certificate: Certificate{Key: s.key, Holder: server, Shown: time.Now()}}
	if err != nil {
		ended := Ended(err)
		if ended == nil {
			return
		}
		c.Refused = true
		c.timeOf(ended)
	} else if of := lastToEnd(state.VerifiedChains); of != nil {
		c.timeOf(of)
		c.hello = helloOf(state)
	} else {
		return
	}
	s.note(c)
}

// noteAll notes the certificates that the replicas of a server show at the same time. All of them count.
func (s *Servers) noteAll(all []Certificate, to hello) {
	for _, c := range all {
		c.Shown = time.Now()
		s.note(shown{Certificate: c, hello: to, returned: len(all) > 1})
	}
}

// note puts a certificate before the others of its server.
func (s *Servers) note(c shown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.met == nil {
		s.met = map[string][]shown{}
	}
	others := s.met[c.Holder]
	if i := slices.IndexFunc(others, func(o shown) bool { return o.identity() == c.identity() }); i >= 0 {
		c.returned = c.returned || others[i].returned || i > 0
	}
	others = slices.DeleteFunc(others, func(o shown) bool {
		return o.identity() == c.identity() || o.Refused || c.Shown.Sub(o.Shown) > inTurn
	})
	s.met[c.Holder] = append([]shown{c}, others[:min(len(others), maxInTurn-1)]...)
	if len(s.met) > maxServers {
		s.forgetOldest()
	}
}

func (s *Servers) forget(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.met, server)
}

// forgetOldest forgets the server that was met least recently. The caller holds the lock.
func (s *Servers) forgetOldest() {
	var oldest string
	for server, all := range s.met {
		if oldest == "" || all[0].Shown.Before(s.met[oldest][0].Shown) {
			oldest = server
		}
	}
	delete(s.met, oldest)
}

// certificates are the certificates that count now: of each server the last, and those that come in turn with it.
func (s *Servers) certificates(now time.Time) (all []Certificate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for server, of := range s.met {
		if last := of[0]; last.Left(now) < -forgetAfter && now.Sub(last.Shown) > forgetAfter {
			delete(s.met, server)
			continue
		}
		for i, c := range of {
			if i == 0 || c.returned {
				all = append(all, c.Certificate)
			}
		}
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
