// Package expiry knows when the certificates in use end: the certificates of this process, the trusted authorities, and
// the certificates that servers show in handshakes.
package expiry

import (
	"crypto/x509"
	"time"
)

// Certificate is a certificate in use, or its authority where the authority ends first.
type Certificate struct {
	// Key is the key of the configuration that leads to the certificate.
	Key string
	// Holder is the file with the certificate, or the server that showed the certificate.
	Holder string
	// Begins and Ends are the limits of the certificate's time.
	Begins, Ends time.Time
	// Refused says that the last handshake with the server failed because the time was over.
	Refused bool
	// Shown is when the server showed the certificate; zero for a file. The server may have a new certificate since.
	Shown time.Time
}

// identity is the certificate without the fields that a further handshake changes.
func (c Certificate) identity() Certificate {
	c.Refused, c.Shown = false, time.Time{}
	return c
}

// day is the unit of the marks.
const day = 24 * time.Hour

// marks are how long before and after the end people are told.
var marks = []time.Duration{30 * day, 7 * day, day, 0, -day, -7 * day, -30 * day}

// Left is how long the certificate is good, negative after the end.
func (c Certificate) Left(now time.Time) time.Duration { return c.Ends.Sub(now) }

// IsOver says whether the certificate has ended.
func (c Certificate) IsOver(now time.Time) bool { return c.Left(now) <= 0 }

// EndsSoon says whether the certificate ends within 30 days, or within the last third of a shorter life.
func (c Certificate) EndsSoon(now time.Time) bool { return c.Left(now) <= c.notice() }

// notice is how long before the end people are told. Automatic renewal is due when a third of the life is left.
func (c Certificate) notice() time.Duration { return min(marks[0], c.Ends.Sub(c.Begins)/3) }

// passed is how many of the marks have passed.
func (c Certificate) passed(now time.Time) (n int) {
	for _, mark := range marks {
		if c.Left(now) <= min(mark, c.notice()) {
			n++
		}
	}
	return n
}

// timeOf sets the limits to those of a certificate of x509.
func (c *Certificate) timeOf(of *x509.Certificate) { c.Begins, c.Ends = of.NotBefore, of.NotAfter }

// firstToEnd is the certificate that ends first; nil of none.
func firstToEnd(all []*x509.Certificate) (first *x509.Certificate) {
	for _, c := range all {
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// OfChain is the certificate of a chain that ends first. Authorities that the roots make needless are left out, such as
// a root that an older root has signed across. Nil roots are the roots of the system. Without a way to the roots each
// certificate of the chain counts.
func OfChain(key, holder string, chain []*x509.Certificate, roots *x509.CertPool) []Certificate {
	if len(chain) == 0 {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	verified, err := chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err == nil {
		return ofOne(key, holder, lastToEnd(verified))
	}
	return ofOne(key, holder, firstToEnd(chain))
}

func ofOne(key, holder string, of *x509.Certificate) []Certificate {
	c := Certificate{Key: key, Holder: holder}
	c.timeOf(of)
	return []Certificate{c}
}

// maxAuthorities is how many authorities a file has at most whose ends matter. A longer file is a bundle of public
// authorities, few of which are in use: their ends show in the chains of servers.
const maxAuthorities = 8

// OfAuthorities is the authority that ends first. An authority that has ended is left out where another is good: a file
// has both while one replaces the other.
func OfAuthorities(key, holder string, authorities []*x509.Certificate, now time.Time) []Certificate {
	var good []*x509.Certificate
	for _, c := range authorities {
		if c.NotAfter.After(now) {
			good = append(good, c)
		}
	}
	if len(good) == 0 {
		good = authorities
	}
	if len(good) == 0 || len(authorities) > maxAuthorities {
		return nil
	}
	return ofOne(key, holder, firstToEnd(good))
}
