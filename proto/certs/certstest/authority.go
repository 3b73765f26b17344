// Package certstest makes certificate authorities for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Authority signs certificates, for this test only.
type Authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	// File holds its certificate in PEM.
	File string
}

// NewAuthority makes a certificate authority. Its certificates are good from 1999 on, like time in a synctest bubble,
// for a hundred years.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(t.TempDir(), "ca.pem")}
	a.key = a.newKey()
	template := a.template("the authority of a test")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	signed, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	a.check(err)
	a.cert, err = x509.ParseCertificate(signed)
	a.check(err)
	a.write(a.File, "CERTIFICATE", signed)
	return a
}

// Certify makes another authority an intermediate authority of this authority. The other keeps its key.
func (a *Authority) Certify(other *Authority) {
	a.t.Helper()
	template := *other.cert
	template.Subject = pkix.Name{CommonName: "an intermediate authority of a test"}
	signed, err := x509.CreateCertificate(rand.Reader, &template, a.cert, other.key.Public(), a.key)
	a.check(err)
	other.cert, err = x509.ParseCertificate(signed)
	a.check(err)
	a.write(other.File, "CERTIFICATE", signed)
}

// Issue makes a certificate for names, which are DNS names, IP addresses or URIs; the first name is the common name
// as well. The result names the files of the certificate and of its key.
func (a *Authority) Issue(names ...string) (certFile, keyFile string) {
	a.t.Helper()
	return a.IssueEdited(nil, names...)
}

// IssueEdited is Issue for a certificate that edit changes before it is signed.
func (a *Authority) IssueEdited(edit func(*x509.Certificate), names ...string) (certFile, keyFile string) {
	a.t.Helper()
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	a.renew(certFile, keyFile, edit, names...)
	return certFile, keyFile
}

// Revoke writes a file with the authority's revocation list, which holds the certificates in files.
func (a *Authority) Revoke(file string, certFiles ...string) {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: a.cert.NotBefore, NextUpdate: a.cert.NotAfter}
	for _, name := range certFiles {
		content, err := os.ReadFile(name)
		a.check(err)
		block, _ := pem.Decode(content)
		cert, err := x509.ParseCertificate(block.Bytes)
		a.check(err)
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: cert.SerialNumber, RevocationTime: a.cert.NotBefore,
		})
	}
	signed, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	a.check(err)
	a.write(file, "X509 CRL", signed)
}

// Renew puts another certificate into the files.
func (a *Authority) Renew(certFile, keyFile string, names ...string) {
	a.t.Helper()
	a.renew(certFile, keyFile, nil, names...)
}

func (a *Authority) renew(certFile, keyFile string, edit func(*x509.Certificate), names ...string) {
	a.t.Helper()
	template := a.template(names[0])
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if strings.Contains(name, "://") {
			uri, err := url.Parse(name)
			a.check(err)
			template.URIs = append(template.URIs, uri)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if edit != nil {
		edit(template)
	}
	key := a.newKey()
	signed, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	a.check(err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	a.check(err)
	a.write(keyFile, "PRIVATE KEY", encoded)
	a.write(certFile, "CERTIFICATE", signed)
}

// Client is the configuration of a client with a certificate for names, or without a certificate when there are no
// names.
func (a *Authority) Client(names ...string) *tls.Config {
	a.t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: a.Pool()}
	if len(names) > 0 {
		config.Certificates = []tls.Certificate{a.load(names...)}
	}
	return config
}

// Server is the configuration of a server with a certificate for names, which requires a certificate from its
// clients.
func (a *Authority) Server(names ...string) *tls.Config {
	a.t.Helper()
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{a.load(names...)}, ClientCAs: a.Pool(),
		ClientAuth: tls.RequireAndVerifyClientCert,
	}
}

// Pool holds its certificate.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *Authority) load(names ...string) tls.Certificate {
	certFile, keyFile := a.Issue(names...)
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	a.check(err)
	return cert
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	return key
}

func (a *Authority) template(commonName string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	a.check(err)
	begin := time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName}, NotBefore: begin,
		NotAfter: begin.AddDate(100, 0, 0),
	}
}

func (a *Authority) write(file, kind string, content []byte) {
	a.check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
}

func (a *Authority) check(err error) {
	if err != nil {
		a.t.Helper()
		a.t.Fatal(err)
	}
}
