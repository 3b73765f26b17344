// Package certs reads the credentials with which the two sides of a gRPC call identify each other: certificates in PEM
// files and bearer tokens in text files. Changed files are read again, so that a credential is replaced without a
// restart. The package also identifies a caller by the certificate or the token of a call.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/msghandler/msghandler/internal/ground/files"
)

// Files names PEM files. An empty name is none.
type Files struct {
	// Cert is the certificate to show, followed by its intermediate certificates, and Key its private key. Both or
	// neither.
	Cert, Key string
	// CA holds the certificates of the authorities of the other side. Without CA a client trusts the authorities of the
	// system, and a server asks for no certificate.
	CA string
}

// Clients says which client certificates a server accepts, of those of the authorities of Files.CA.
type Clients struct {
	// CRL is a PEM file with certificate revocation lists of the authorities. Empty: no certificate is revoked.
	CRL string
	// Optional accepts clients without a certificate. A certificate that a client shows must be valid all the same.
	Optional bool
}

// Source is the current content of the files. A Source is safe for concurrent use.
type Source struct {
	clients Clients
	// own and accepted change independently: a certificate whose key is wrong must not keep a withdrawn authority in
	// use.
	own      *files.Watched[contents, []tls.Certificate]
	accepted *files.Watched[contents, material]
}

// contents are the contents of two files.
type contents [2]string

// material is made of the contents.
type material struct {
	own         []tls.Certificate
	authorities *x509.CertPool      // nil: none were named
	trusted     []*x509.Certificate // those of authorities
	revoked     revocations
}

// Open reads the files. Open fails when a file cannot be read or is invalid, with an error that names the file. Reloads
// are logged.
func Open(named Files, logger *slog.Logger) (*Source, error) {
	return OpenServer(named, Clients{}, logger)
}

// OpenServer is Open for a server that checks the certificates of its clients.
func OpenServer(named Files, clients Clients, logger *slog.Logger) (*Source, error) {
	s := &Source{clients: clients}
	reloaded := func() {
		logger.Info("certificates reloaded", "cert", named.Cert, "ca", named.CA, "crl", clients.CRL)
	}
	failed := func(err error) {
		logger.Warn("changed certificates are unusable; the certificates read before stay in use; correct the files",
			"cause", err)
	}
	var err error
	s.own, err = files.Watch(files.Source[contents, []tls.Certificate]{
		Read: func() (contents, error) { return read(named.Cert, named.Key) },
		Make: named.makeOwn, Reloaded: reloaded, Failed: failed,
	})
	if err != nil {
		return nil, err
	}
	s.accepted, err = files.Watch(files.Source[contents, material]{
		Read:     func() (contents, error) { return read(named.CA, clients.CRL) },
		Make:     func(read contents) (material, error) { return named.makeAccepted(read, clients.CRL, logger) },
		Reloaded: reloaded, Failed: failed,
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Chain is the shown certificate with its intermediate authorities; empty without a certificate.
func (s *Source) Chain() (all []*x509.Certificate) {
	for _, own := range s.current().own {
		for _, der := range own.Certificate {
			if c, err := x509.ParseCertificate(der); err == nil {
				all = append(all, c)
			}
		}
	}
	return all
}

// Authorities are those of Files.CA.
func (s *Source) Authorities() []*x509.Certificate { return s.current().trusted }

// Parse returns the certificates of a file in PEM, and leaves out what is none.
func Parse(content []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, content = pem.Decode(content); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
}

func (s *Source) current() material {
	now := s.accepted.Current()
	now.own = s.own.Current()
	return now
}

func read(names ...string) (read contents, err error) {
	for i, name := range names {
		if name == "" {
			continue
		}
		content, err := os.ReadFile(name) //nolint:gosec // the path is the operator's own
		if err != nil {
			return contents{}, err // the error names the file
		}
		read[i] = string(content)
	}
	return read, nil
}

var errNoCertificate = errors.New("holds no certificate in PEM")

func (f Files) makeOwn(read contents) ([]tls.Certificate, error) {
	if f.Cert == "" && f.Key == "" {
		return nil, nil
	}
	own, err := tls.X509KeyPair([]byte(read[0]), []byte(read[1]))
	if err != nil {
		return nil, fmt.Errorf("%s with the key %s: %w", f.Cert, f.Key, err)
	}
	return []tls.Certificate{own}, nil
}

func (f Files) makeAccepted(read contents, crl string, logger *slog.Logger) (made material, err error) {
	authorities := []byte(read[0])
	if f.CA != "" {
		made.authorities = x509.NewCertPool()
		if !made.authorities.AppendCertsFromPEM(authorities) {
			return material{}, fmt.Errorf("%s %w", f.CA, errNoCertificate)
		}
		made.trusted = Parse(authorities)
	}
	if crl == "" {
		return made, nil
	}
	var foreign []string
	if made.revoked, foreign, err = parseRevocations([]byte(read[1]), authorities); err != nil {
		return material{}, fmt.Errorf("%s: %w", crl, err)
	}
	for _, issuer := range foreign {
		logger.Warn("a revocation list is signed by no authority for client certificates; its signature is not "+
			"checked; remove the list, unless its issuer is an intermediate authority", "crl", crl, "issuer", issuer)
	}
	return made, nil
}
