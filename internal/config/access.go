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
	// AuditRecords is about how many records of changes, and of refusals, Redis keeps.
	AuditRecords int
}

// Tokens says that callers may show bearer tokens.
func (a *Access) Tokens() bool { return a.TokenFile != "" || a.OIDC.Issuer != "" }

// Strict says that what no key grants is denied: a key gives roles, or names a source of tokens.
func (a *Access) Strict() bool {
	return a.Tokens() || len(a.Viewers)+len(a.Readers)+len(a.Operators)+len(a.Admins) > 0
}

// Identifies says whether anything tells who calls: certificates of clients, or tokens.
func (c *Config) Identifies() bool { return c.GRPC.Certificates.CA != "" || c.Access.Tokens() }

// Exposed names the listeners that other machines reach, each as key and address. A console whose proxy names its users
// is not among them.
func (c *Config) Exposed() (listeners []string) {
	for _, listener := range []struct{ key, addr string }{{"grpc.addr", c.GRPC.Addr}, {"http.addr", c.HTTP.Addr}} {
		if behindProxy := listener.key == "http.addr" && c.HTTP.UserHeader != ""; !behindProxy && !isLoopback(listener.addr) {
			listeners = append(listeners, fmt.Sprintf("%s (%s)", listener.key, listener.addr))
		}
	}
	return listeners
}

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
			Meaning: "Accept callers that show no certificate and no token, and allow them everything. Without it, a " +
				"coordinator that listens on an address other than the loopback needs a source of identities to start.",
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
		{
			Name: "access.audit_records", Default: "10000", value: whole(&a.AuditRecords, 0, 1_000_000),
			Meaning: "About how many audit records Redis keeps, of changes and of refused calls each. 0: the log alone " +
				"has them.",
		},
	}, a.OIDC.keys()...)
}
