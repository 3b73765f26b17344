package typedname

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName is how many bytes a name may have that rules match: as many as a SPIFFE id.
const maxName = 2048

// alternativeNames is the extension of a certificate that holds its subject alternative names.
var alternativeNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// OfCertificate are the typed names in a certificate: dns:, uri: and email: of its subject alternative names. The
// common name, as cn:, counts only in a certificate without any alternative name: an authority that checks the
// alternative names may let the owner choose the common name.
func OfCertificate(cert *x509.Certificate) (names []string) {
	for _, name := range cert.DNSNames {
		names = append(names, typedName("dns", name)...)
	}
	for _, uri := range cert.URIs {
		names = append(names, typedName("uri", uri.String())...)
	}
	for _, name := range cert.EmailAddresses {
		names = append(names, typedName("email", name)...)
	}
	if !slices.ContainsFunc(cert.Extensions, isAlternative) {
		names = append(names, typedName("cn", cert.Subject.CommonName)...)
	}
	return names
}

// isAlternative finds alternative names of every kind, those that Go does not read too.
func isAlternative(e pkix.Extension) bool { return e.Id.Equal(alternativeNames) }

// typedName is a name with its type, or none where the name is unfit for rules and for the log: a blank at an end makes
// a name look like another one. A name with a * stands for many hosts, and so for no caller.
func typedName(kind, name string) []string {
	if name == "" || len(name) > maxName || !isPrintable(name) || strings.TrimSpace(name) != name ||
		strings.Contains(name, "*") {
		return nil
	}
	return []string{kind + ":" + name}
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
