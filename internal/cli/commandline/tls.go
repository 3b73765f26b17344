package commandline

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/proto/certs"
)

// TLSFlags configure TLS for calls to a coordinator.
type TLSFlags struct {
	TLS     bool   `name:"tls" help:"Talk to the coordinator with TLS (also: MSGHANDLER_TLS=true). Each of the flags below means it too."`
	TLSCA   string `name:"tls-ca" help:"The certificates of its authorities, a PEM file; default: the system's (also: MSGHANDLER_TLS_CA)." placeholder:"FILE" type:"path"`
	TLSCert string `name:"tls-cert" help:"The certificate to show it, a PEM file (also: MSGHANDLER_TLS_CERT)." placeholder:"FILE" type:"path"`
	TLSKey  string `name:"tls-key" help:"The private key of that (also: MSGHANDLER_TLS_KEY)." placeholder:"FILE" type:"path"`
	TLSName string `name:"tls-name" help:"Whom its certificate must be for, where that is not the host of its address (also: MSGHANDLER_TLS_NAME)." placeholder:"HOST"`
}

// Config is the TLS configuration for calls to a coordinator; nil: calls without TLS.
func (f *TLSFlags) Config(s *Session) (*tls.Config, error) {
	switch on := s.Variable("MSGHANDLER_TLS"); on {
	case "", "true", "false":
	default:
		return nil, fmt.Errorf("MSGHANDLER_TLS=%s is neither true nor false", on)
	}
	if !f.Secured(s) {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	source, err := certs.Open(f.files(s), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return source.ClientConfig(f.name(s)), nil
}

// Credentials are the credentials of calls to a coordinator.
func (f *TLSFlags) Credentials(s *Session) (credentials.TransportCredentials, error) {
	config, err := f.Config(s)
	if err != nil || config == nil {
		return insecure.NewCredentials(), err
	}
	return credentials.NewTLS(config), nil
}

// Secured says whether calls to a coordinator have TLS.
func (f *TLSFlags) Secured(s *Session) bool {
	return f.TLS || s.Variable("MSGHANDLER_TLS") == "true" || f.files(s) != (certs.Files{}) || f.name(s) != ""
}

func (f *TLSFlags) name(s *Session) string {
	return cmp.Or(f.TLSName, s.Variable("MSGHANDLER_TLS_NAME"))
}

func (f *TLSFlags) files(s *Session) certs.Files {
	return certs.Files{
		CA:   cmp.Or(f.TLSCA, s.Variable("MSGHANDLER_TLS_CA")),
		Cert: cmp.Or(f.TLSCert, s.Variable("MSGHANDLER_TLS_CERT")),
		Key:  cmp.Or(f.TLSKey, s.Variable("MSGHANDLER_TLS_KEY")),
	}
}

// Hint is for calls without a client certificate: a coordinator that demands a certificate closes the connection, often
// before its error arrives.
func (f *TLSFlags) Hint(s *Session) string {
	if !f.Secured(s) || f.files(s).Cert != "" {
		return ""
	}
	return ", or show it a certificate with --tls-cert and --tls-key"
}
