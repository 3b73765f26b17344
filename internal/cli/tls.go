package cli

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/internal/certs"
)

// tlsFlags say how a coordinator is talked to.
type tlsFlags struct {
	TLS     bool   `name:"tls" help:"Talk to the coordinator with TLS (also: MSGHANDLER_TLS=true). Each of the flags below means it too."`
	TLSCA   string `name:"tls-ca" help:"The certificates of its authorities, a PEM file; default: the system's (also: MSGHANDLER_TLS_CA)." placeholder:"FILE" type:"path"`
	TLSCert string `name:"tls-cert" help:"The certificate to show it, a PEM file (also: MSGHANDLER_TLS_CERT)." placeholder:"FILE" type:"path"`
	TLSKey  string `name:"tls-key" help:"The private key of that (also: MSGHANDLER_TLS_KEY)." placeholder:"FILE" type:"path"`
	TLSName string `name:"tls-name" help:"Whom its certificate must be for, where that is not the host of its address (also: MSGHANDLER_TLS_NAME)." placeholder:"HOST"`
}

// config is how a coordinator is talked to with TLS; nil: without it.
func (f *tlsFlags) config(s *session) (*tls.Config, error) {
	switch on := s.env("MSGHANDLER_TLS"); on {
	case "", "true", "false":
	default:
		return nil, fmt.Errorf("MSGHANDLER_TLS=%s is neither true nor false", on)
	}
	if !f.wanted(s) {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	source, err := certs.Open(f.files(s), slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return source.ClientConfig(f.name(s)), nil
}

// credentials are those that a coordinator is talked to with.
func (f *tlsFlags) credentials(s *session) (credentials.TransportCredentials, error) {
	config, err := f.config(s)
	if err != nil || config == nil {
		return insecure.NewCredentials(), err
	}
	return credentials.NewTLS(config), nil
}

// wanted says whether anything was said of TLS.
func (f *tlsFlags) wanted(s *session) bool {
	return f.TLS || s.env("MSGHANDLER_TLS") == "true" || f.files(s) != (certs.Files{}) || f.name(s) != ""
}

func (f *tlsFlags) name(s *session) string { return cmp.Or(f.TLSName, s.env("MSGHANDLER_TLS_NAME")) }

func (f *tlsFlags) files(s *session) certs.Files {
	return certs.Files{
		CA:   cmp.Or(f.TLSCA, s.env("MSGHANDLER_TLS_CA")),
		Cert: cmp.Or(f.TLSCert, s.env("MSGHANDLER_TLS_CERT")),
		Key:  cmp.Or(f.TLSKey, s.env("MSGHANDLER_TLS_KEY")),
	}
}

// hint is for those who show no certificate: a coordinator that wants one hangs up, often before it has said so.
func (f *tlsFlags) hint(s *session) string {
	if !f.wanted(s) || f.files(s).Cert != "" {
		return ""
	}
	return ", or show it a certificate with --tls-cert and --tls-key"
}
