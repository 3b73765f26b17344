package commandline

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"

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
	typed, err := f.typed(s.Variable)
	if err != nil {
		return nil, err
	}
	return typed.config()
}

// tlsChoice is how a command talks to a coordinator.
type tlsChoice struct {
	on bool
	// off says that the environment wants no TLS, and that no flag does.
	off   bool
	files certs.Files
	name  string
}

// typed is what the flags and the environment say.
func (f *TLSFlags) typed(variable func(name string) string) (tlsChoice, error) {
	on := variable("MSGHANDLER_TLS")
	switch on {
	case "", "true", "false":
	default:
		return tlsChoice{}, fmt.Errorf("MSGHANDLER_TLS=%s is neither true nor false", on)
	}
	c := tlsChoice{
		files: certs.Files{
			CA:   cmp.Or(f.TLSCA, variable("MSGHANDLER_TLS_CA")),
			Cert: cmp.Or(f.TLSCert, variable("MSGHANDLER_TLS_CERT")),
			Key:  cmp.Or(f.TLSKey, variable("MSGHANDLER_TLS_KEY")),
		},
		name: cmp.Or(f.TLSName, variable("MSGHANDLER_TLS_NAME")),
	}
	c.off = on == "false" && *f == (TLSFlags{})
	c.on = !c.off && (f.TLS || on == "true" || c.files != (certs.Files{}) || c.name != "")
	return c, nil
}

// config is nil for calls without TLS.
func (c tlsChoice) config() (*tls.Config, error) {
	if !c.on {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	source, err := certs.Open(c.files, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return source.ClientConfig(c.name), nil
}
