package access

import (
	"crypto/x509"

	"github.com/msghandler/msghandler/internal/ground/typedname"
)

// CertificateNames are the typed names in a certificate.
func CertificateNames(cert *x509.Certificate) []string { return typedname.OfCertificate(cert) }

// GlobType is the type of the names that a glob matches, such as dns; empty for a glob without a type.
func GlobType(text string) string { return typedname.TypeOf(text) }

// CheckGlob refuses a text that is no glob on typed names. The error is a phrase that follows the text.
func CheckGlob(text string) error { return typedname.Check(text) }

// CheckAnyGlob accepts a glob without a type too.
func CheckAnyGlob(text string) error { return typedname.CheckAny(text) }

// CheckCallerGlob is CheckAnyGlob for callers of producers: {producer} stands for the producer's name.
func CheckCallerGlob(text string) error { return typedname.CheckCaller(text) }
