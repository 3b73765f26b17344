package config

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/msghandler/msghandler/internal/ground/typedname"
)

// Access says who callers are, and what they may do.
type Access struct {
	// Anonymous allows everything to callers that show nothing.
	Anonymous bool
	// Viewers, Readers, Operators and Admins are globs on typed names.
	Viewers, Readers, Operators, Admins []string
	TokenFile                           string
	OIDC                                OIDC
}

// Tokens says that callers may show bearer tokens.
func (a *Access) Tokens() bool { return a.TokenFile != "" || a.OIDC.Issuer != "" }

// Identifies says whether any source tells who calls: certificates of clients, tokens, or the proxy of the console.
func (c *Config) Identifies() bool {
	return c.GRPC.Certificates.CA != "" || c.Access.Tokens() || c.HTTP.UserHeader != ""
}

// Exposed names the listeners that other machines reach and that cannot tell who calls, each as key and address. The
// console asks for no certificate, so only tokens and a proxy tell who uses it.
func (c *Config) Exposed() (listeners []string) {
	for _, listener := range []struct {
		key, addr  string
		identifies bool
	}{
		{"grpc.addr", c.GRPC.Addr, c.Access.Tokens() || c.GRPC.Certificates.CA != ""},
		{"http.addr", c.HTTP.Addr, c.Access.Tokens() || c.HTTP.UserHeader != ""},
	} {
		if !listener.identifies && !isLoopback(listener.addr) {
			listeners = append(listeners, fmt.Sprintf("%s (%s)", listener.key, listener.addr))
		}
	}
	return listeners
}

// NamesCallers says whether any key can give a caller a producer. Tokens bring producers of their own.
func (c *Config) NamesCallers() bool {
	for _, p := range c.Producers {
		if len(p.Callers) > 0 {
			return true
		}
	}
	return len(c.GRPC.Callers) > 0 || c.Access.Tokens() || c.Open()
}

// Open says that callers who show nothing may do everything: a key says so, or there is no source of identities, for
// which anything could be granted. Without a source, coordinators serve on the loopback only (Exposed).
func (c *Config) Open() bool { return c.Access.Anonymous || !c.Identifies() }

// ExposesConsole says that other machines reach the console.
func (c *Config) ExposesConsole() bool { return !isLoopback(c.HTTP.Addr) }

// isLoopback reports whether only this machine reaches an address of the form host:port.
func isLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr) // checked by Load
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || err != nil && isLocalhost(host)
}

func (a *Access) keys() []Key {
	return append([]Key{
		{
			Name: "access.anonymous", Default: "false", value: flag(&a.Anonymous),
			Meaning: "Accept callers that show no certificate and no token, and allow them everything. Without it, what no " +
				"key grants is denied, except where no source of identities is configured and both listeners have loopback " +
				"addresses. A listener that other machines reach needs a source of identities to start.",
		},
		{
			Name: "access.viewers", value: list(&a.Viewers, 0, typedname.Check),
			Meaning: "Who may see counts and lists, without bodies: globs on typed names, such as " +
				"dns:*.ops.example.com, email:*@example.com, token:dashboard or jwt:anna. * is one label of a name.",
		},
		{
			Name: "access.readers", value: list(&a.Readers, 0, typedname.Check),
			Meaning: "Who may see bodies and headers too: globs as in access.viewers.",
		},
		{
			Name: "access.operators", value: list(&a.Operators, 0, typedname.Check),
			Meaning: "Who may retry messages too: globs as in access.viewers.",
		},
		{
			Name: "access.admins", value: list(&a.Admins, 0, typedname.Check),
			Meaning: "Who may discard and replay messages too: globs as in access.viewers.",
		},
		{
			Name: "access.token_file", value: text(&a.TokenFile, checkFile),
			Meaning: "File with the hashes of tokens, written by msghandler token. The file is read again when it " +
				"changes.",
		},
	}, a.OIDC.keys()...)
}
