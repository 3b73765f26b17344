package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"google.golang.org/grpc/credentials"
)

// revocations are the serial numbers that authorities have revoked, by the public keys of the authorities.
type revocations map[revoked]struct{}

type revoked struct{ key, serial string }

var (
	errNoList  = errors.New("holds no certificate revocation list in PEM (X509 CRL)")
	errRevoked = errors.New("the certificate is revoked")
)

// parseRevocations reads revocation lists, each signed by one of the authorities. A list that is older than its next
// update still counts: without it, what it revokes would be valid again.
func parseRevocations(lists, authorities []byte) (revocations, error) {
	issuers := certificatesIn(authorities)
	all := revocations{}
	found := false
	for block, rest := pem.Decode(lists); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			continue
		}
		found = true
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, err
		}
		issuer, err := issuerOf(list, issuers)
		if err != nil {
			return nil, err
		}
		for i := range list.RevokedCertificateEntries {
			all[revoked{issuer, list.RevokedCertificateEntries[i].SerialNumber.String()}] = struct{}{}
		}
	}
	if !found {
		return nil, errNoList
	}
	return all, nil
}

func certificatesIn(content []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, cert)
		}
	}
	return all
}

// issuerOf is the public key of the authority that has signed a list.
func issuerOf(list *x509.RevocationList, authorities []*x509.Certificate) (string, error) {
	err := errors.New("none of the authorities has its name")
	for _, authority := range authorities {
		if string(list.RawIssuer) != string(authority.RawSubject) {
			continue
		}
		if err = list.CheckSignatureFrom(authority); err == nil {
			return string(authority.RawSubjectPublicKeyInfo), nil
		}
	}
	return "", fmt.Errorf("the revocation list of %s is of no authority for client certificates: %w", list.Issuer, err)
}

// check fails when each of the chains holds a revoked certificate.
func (r revocations) check(chains [][]*x509.Certificate) error {
	if len(r) == 0 || len(chains) == 0 {
		return nil
	}
	for _, chain := range chains {
		if !r.holds(chain) {
			return nil
		}
	}
	return errRevoked
}

func (r revocations) holds(chain []*x509.Certificate) bool {
	for i := range len(chain) - 1 {
		key := revoked{string(chain[i+1].RawSubjectPublicKeyInfo), chain[i].SerialNumber.String()}
		if _, is := r[key]; is {
			return true
		}
	}
	return false
}

// Withdrawn says why the client certificate of a connection does not hold any more: its time has ended, its authority
// is not in the file any more, or it is revoked. The result is nil where the certificate holds, and where there is none.
func (s *Source) Withdrawn(info credentials.AuthInfo) error {
	secured, ok := info.(credentials.TLSInfo)
	if !ok || len(secured.State.PeerCertificates) == 0 {
		return nil
	}
	now := s.current()
	chains, err := now.verify(secured.State.PeerCertificates)
	if err != nil {
		return err
	}
	return now.revoked.check(chains)
}

// verify verifies the certificates that a client has shown, as the handshake of TLS does.
func (m material) verify(shown []*x509.Certificate) ([][]*x509.Certificate, error) {
	intermediates := x509.NewCertPool()
	for _, cert := range shown[1:] {
		intermediates.AddCert(cert)
	}
	return shown[0].Verify(x509.VerifyOptions{
		Roots: m.authorities, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// accept refuses a connection whose client certificate is revoked.
func (m material) accept(state tls.ConnectionState) error {
	return m.revoked.check(state.VerifiedChains)
}
