package commandline

import (
	"cmp"
	"log/slog"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/proto/certs"
)

// CoordinatorFlags say which coordinator a command talks to, and how.
type CoordinatorFlags struct {
	Server  string `help:"The coordinator's address (also: MSGHANDLER_SERVER; default: grpc.addr, and TLS as the configuration has it)." placeholder:"HOST:PORT"`
	Context string `help:"The installation to talk to, of ~/.config/msghandler/contexts.yaml (also: MSGHANDLER_CONTEXT; default: the current one of that file, unless a server or a configuration is named)." placeholder:"NAME"`
	TLSFlags
	TokenFlags
}

// Coordinator is a coordinator that a command talks to.
type Coordinator struct {
	Address string
	// Credentials are for the connection.
	Credentials credentials.TransportCredentials
	// Token is shown on each call; nil: no token.
	Token credentials.PerRPCCredentials
	// Hint says what a running coordinator may miss in the command, as the end of a sentence; may be empty.
	Hint string
}

// Coordinator says how to reach the coordinator. Without an address, the command talks to the coordinator that this
// machine runs with the configuration, in which flags win.
func (f *CoordinatorFlags) Coordinator(s *Session, flags map[string]string) (Coordinator, error) {
	variable := s.Variable
	if f.Context != "" { // the environment may be for another installation
		variable = func(string) string { return "" }
	}
	secured, err := f.typed(variable)
	if err != nil {
		return Coordinator{}, err
	}
	installation, inContext, err := f.context(s, flags)
	if err != nil {
		return Coordinator{}, err
	}
	shown := f.TokenFlags
	c := Coordinator{Address: cmp.Or(f.Server, s.Variable("MSGHANDLER_SERVER"))}
	if inContext {
		c.Address = installation.Server
		secured.add(installation)
		if cmp.Or(variable("MSGHANDLER_TOKEN"), variable("MSGHANDLER_TOKEN_FILE")) == "" {
			shown.TokenFile = cmp.Or(shown.TokenFile, installation.TokenFile)
		}
	}
	showsOwn := secured.files.Cert != ""
	if c.Address == "" {
		settings, err := s.Load(flags)
		if err != nil {
			return Coordinator{}, err
		}
		c.Address = onThisMachine(settings.GRPC.Addr)
		c.Hint = secured.trust(settings.GRPC.Certificates)
	}
	if secured.on && !showsOwn {
		c.Hint += ", or show it a certificate with --tls-cert and --tls-key"
	}
	encryption, err := secured.config()
	if err != nil {
		return Coordinator{}, err
	}
	c.Credentials = insecure.NewCredentials()
	if encryption != nil {
		c.Credentials = credentials.NewTLS(encryption)
	}
	if f.Context != "" && shown.TokenFile == "" {
		return c, nil
	}
	token, err := shown.Token(s, c.Address, encryption != nil)
	if err == nil && token != "" {
		c.Token = certs.Bearer(func() string { return token }, encryption == nil)
	}
	return c, err
}

// add fills what was not typed from a context.
func (c *tlsChoice) add(i Installation) {
	if c.off {
		return
	}
	c.files.CA = cmp.Or(c.files.CA, i.TLSCA)
	if c.files.Cert == "" && c.files.Key == "" {
		c.files.Cert, c.files.Key = i.TLSCert, i.TLSKey
	}
	c.name = cmp.Or(c.name, i.TLSName)
	c.on = c.on || i.Encrypted()
}

// onThisMachine is an address to dial for an address to listen on.
func onThisMachine(listened string) string {
	host, port, err := net.SplitHostPort(listened)
	if err != nil {
		return listened
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip.Equal(net.IPv4zero):
		host = "127.0.0.1"
	case ip.Equal(net.IPv6zero):
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// trust fills what was not typed from the certificates of a coordinator on this machine. That coordinator shows the
// certificate of the file, so the command trusts that certificate, under its own name, and needs no authority. A
// coordinator that asks for client certificates gets its own one: it tells its health to every caller that has one.
// The result is a Hint.
func (c *tlsChoice) trust(shown config.Certificates) (hint string) {
	if shown.Cert == "" || c.off {
		return ""
	}
	c.on = true
	name, err := nameIn(shown.Cert)
	if err != nil {
		if c.files.CA == "" {
			return ", or name its authority with --tls-ca, as grpc.tls_cert cannot be read"
		}
		return ""
	}
	c.name, c.files.CA = cmp.Or(c.name, name), cmp.Or(c.files.CA, shown.Cert)
	if shown.CA == "" || c.files.Cert != "" || c.files.Key != "" {
		return ""
	}
	own := certs.Files{Cert: shown.Cert, Key: shown.Key}
	if _, err := certs.Open(own, slog.New(slog.DiscardHandler)); err == nil {
		c.files.Cert, c.files.Key = shown.Cert, shown.Key
	}
	return ""
}

// nameIn is a name that the first certificate of a file is for; empty where the certificate has none.
func nameIn(file string) (string, error) {
	content, err := os.ReadFile(file) //nolint:gosec // the path is the operator's own
	if err != nil {
		return "", err
	}
	all := certs.Parse(content)
	switch {
	case len(all) == 0:
		return "", os.ErrInvalid
	case len(all[0].DNSNames) > 0:
		return strings.Replace(all[0].DNSNames[0], "*", "coordinator", 1), nil
	case len(all[0].IPAddresses) > 0:
		return all[0].IPAddresses[0].String(), nil
	}
	return "", nil
}
