package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/ground/typedname"
	"github.com/msghandler/msghandler/test/must"
)

// certificate signs a template and reads the certificate again, as a server does.
func certificate(t testing.TB, template x509.Certificate) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template.SerialNumber = big.NewInt(0xbeef)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	signed, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(signed)
	must.Succeed(t, err)
	return cert
}

func named(common string) pkix.Name { return pkix.Name{CommonName: common} }

func TestNamesOfACertificateHaveTypes(t *testing.T) {
	t.Parallel()
	spiffe, err := url.Parse("spiffe://shop/orders")
	must.Succeed(t, err)
	boss := named("boss")
	for what, tc := range map[string]struct {
		template x509.Certificate
		want     []string
	}{
		"all": {
			x509.Certificate{
				Subject: named("boss"), DNSNames: []string{"orders.shop", "b.shop"}, URIs: []*url.URL{spiffe},
				EmailAddresses: []string{"boss@shop"},
			},
			[]string{"dns:orders.shop", "dns:b.shop", "uri:spiffe://shop/orders", "email:boss@shop"},
		},
		"a common name alone":             {x509.Certificate{Subject: named("anna smith")}, []string{"cn:anna smith"}},
		"a common name beside a DNS name": {x509.Certificate{Subject: boss, DNSNames: []string{"a"}}, []string{"dns:a"}},
		"a common name beside an address": {x509.Certificate{Subject: boss, IPAddresses: []net.IP{{10, 0, 0, 1}}}, nil},
		"a common name beside what Go does not read": {x509.Certificate{Subject: boss, ExtraExtensions: []pkix.Extension{
			// One name of the type registeredID.
			{Id: []int{2, 5, 29, 17}, Value: []byte{0x30, 0x05, 0x88, 0x03, 0x2a, 0x03, 0x04}},
		}}, nil},
		"a common name that the log cannot hold": {x509.Certificate{Subject: named("boss\nlevel=INFO")}, nil},
		"a common name that looks like another":  {x509.Certificate{Subject: named("boss ")}, nil},
		"an endless common name":                 {x509.Certificate{Subject: named(strings.Repeat("b", 2049))}, nil},
		"a name for many hosts": {
			x509.Certificate{DNSNames: []string{"*.ops.shop", "orders.shop"}}, []string{"dns:orders.shop"},
		},
		"a common name for many hosts": {x509.Certificate{Subject: named("*")}, nil},
		"none":                         {x509.Certificate{}, nil},
	} {
		if got := typedname.OfCertificate(certificate(t, tc.template)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q", what, got, tc.want)
		}
	}
}

// FuzzNames checks names that a certificate may have, and what globs match of them.
func FuzzNames(f *testing.F) {
	f.Add("boss", "orders.shop", "anna@shop", "spiffe://shop/orders", "dns:*.shop")
	f.Add("boss\x00", "*.shop", `"a@b"@shop`, "urn:x", "{producer}.shop")
	f.Add("", "", "", "", "email:*@*")
	f.Fuzz(func(t *testing.T, common, dns, email, uri, glob string) {
		cert := &x509.Certificate{Subject: named(common), SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		for _, each := range []struct {
			name string
			to   *[]string
		}{{dns, &cert.DNSNames}, {email, &cert.EmailAddresses}} {
			if each.name != "" {
				*each.to = []string{each.name}
			}
		}
		if parsed, err := url.Parse(uri); err == nil && uri != "" {
			cert.URIs = []*url.URL{parsed}
		}
		names := typedname.OfCertificate(cert)
		for _, name := range names {
			kind, text, _ := strings.Cut(name, ":")
			bad := func(r rune) bool { return !unicode.IsPrint(r) }
			if text == "" || strings.ContainsFunc(text, bad) || !utf8.ValidString(text) || typedname.TypeOf(name) != kind {
				t.Fatalf("%q is a name", name)
			}
		}
		if typedname.CheckCaller(glob) != nil {
			return
		}
		made, err := access.NewAuthenticator(access.Rules{Admins: []string{glob}, Callers: []string{glob}})
		if err != nil {
			t.Fatalf("%q is checked and refused: %v", glob, err)
		}
		caller, err := made.Identify(t.Context(), access.Shown{Certificate: cert})
		must.Succeed(t, err)
		for _, name := range names {
			if !strings.Contains(glob, "*") && glob == name &&
				caller.Role != access.Admin && !strings.Contains(glob, "{producer}") {
				t.Errorf("%q does not match %q", glob, name)
			}
		}
	})
}
