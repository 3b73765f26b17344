package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"

	"google.golang.org/grpc/credentials"
)

// revocations are the serial numbers that authorities have revoked.
type revocations map[revoked]struct{}

// revoked is a serial number of an authority: of its public key, its key identifier or its name.
type revoked struct{ authority, serial string }

var (
	errNoList  = errors.New("holds no certificate revocation list in PEM (X509 CRL)")
	errRevoked = errors.New("the certificate is revoked")
)

// parseRevocations reads revocation lists. A list that is older than its next update still counts: without it, what it
// revokes would be valid again. A list that none of the authorities has signed counts too, and foreign names it. An
// authority may be removed before its list: the list must not keep the removed authority in use.
func parseRevocations(lists, authorities []byte) (all revocations, foreign []string, err error) {
	issuers := certificatesIn(authorities)
	all = revocations{}
	found := false
	for block, rest := pem.Decode(lists); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "X509 CRL" {
			continue
		}
		found = true
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, nil, err
		}
		issuer, known := issuerOf(list, issuers)
		if !known {
			foreign = append(foreign, list.Issuer.String())
		}
		for i := range list.RevokedCertificateEntries {
			all[revoked{issuer, list.RevokedCertificateEntries[i].SerialNumber.String()}] = struct{}{}
		}
	}
	if !found {
		return nil, nil, errNoList
	}
	return all, foreign, nil
}

func certificatesIn(content []byte) (all []*x509.Certificate) {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, cert)
		}
	}
	return all
}

// issuerOf is the public key of the authority that has signed a list. known is false where none of the authorities has;
// the result is then the key identifier of the list's issuer, or else its name.
func issuerOf(list *x509.RevocationList, authorities []*x509.Certificate) (issuer string, known bool) {
	for _, authority := range authorities {
		if string(list.RawIssuer) == string(authority.RawSubject) && list.CheckSignatureFrom(authority) == nil {
			return string(authority.RawSubjectPublicKeyInfo), true
		}
	}
	return cmp.Or(string(list.AuthorityKeyId), string(list.RawIssuer)), false
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
		cert, serial := chain[i], chain[i].SerialNumber.String()
		for _, authority := range [][]byte{chain[i+1].RawSubjectPublicKeyInfo, cert.AuthorityKeyId, cert.RawIssuer} {
			if _, is := r[revoked{string(authority), serial}]; is {
				return true
			}
		}
	}
	return false
}

// Withdrawn says why the client certificate of a connection does not hold any more: its time has ended, its authority
// is not in the file any more, or it is revoked. The result is nil where the certificate holds, and without a
// certificate.
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
