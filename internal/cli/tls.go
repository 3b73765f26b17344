package cli

import (
	"cmp"
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

// credentials are those that a coordinator is talked to with.
func (f *tlsFlags) credentials(s *session) (credentials.TransportCredentials, error) {
	files, name := f.files(s), cmp.Or(f.TLSName, s.env("MSGHANDLER_TLS_NAME"))
	if !f.TLS && s.env("MSGHANDLER_TLS") != "true" && files == (certs.Files{}) && name == "" {
		return insecure.NewCredentials(), nil
	}
	source, err := certs.Open(files, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return source.Client(name), nil
}

func (f *tlsFlags) files(s *session) certs.Files {
	return certs.Files{
		CA:   cmp.Or(f.TLSCA, s.env("MSGHANDLER_TLS_CA")),
		Cert: cmp.Or(f.TLSCert, s.env("MSGHANDLER_TLS_CERT")),
		Key:  cmp.Or(f.TLSKey, s.env("MSGHANDLER_TLS_KEY")),
	}
}

// hint is for those who show no certificate: a coordinator that wants one hangs up, often before it has said so.
func (f *tlsFlags) hint(s *session) string {
	if f.files(s).Cert != "" {
		return ""
	}
	return "; if it takes TLS only, or wants a certificate: --tls-cert and the flags beside it"
}
