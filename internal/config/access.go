package config

import (
	"fmt"
	"net"
	"net/netip"
)

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
