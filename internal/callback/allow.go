package callback

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// rules say which targets may be dialled, and which addresses may be connected to.
type rules struct {
	allow    []pattern
	networks []netip.Prefix
}

// pattern is a glob of callbacks.allow. A star stands for any characters, dots included, but never for the colon
// between host and port.
type pattern struct {
	host string
	port string
	// address says that the host is written as an address, so a matching literal address is allowed on purpose.
	address bool
}

func newRules(allow, networks []string) (rules, error) {
	var r rules
	for _, glob := range allow {
		p, err := parsePattern(glob)
		if err != nil {
			return rules{}, err
		}
		r.allow = append(r.allow, p)
	}
	for _, cidr := range networks {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return rules{}, fmt.Errorf("callback network %q is not a CIDR: %w", cidr, err)
		}
		r.networks = append(r.networks, prefix.Masked())
	}
	return r, nil
}

func parsePattern(glob string) (pattern, error) {
	i := strings.LastIndexByte(glob, ':')
	if i <= 0 || strings.Trim(glob[i+1:], "0123456789*") != "" || i == len(glob)-1 {
		return pattern{}, fmt.Errorf("allowed callback target %q is no glob on host:port", glob)
	}
	host := strings.ToLower(glob[:i])
	bracketed := strings.HasPrefix(host, "[")
	if bracketed {
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	}
	if host == "" {
		return pattern{}, fmt.Errorf("allowed callback target %q has no host", glob)
	}
	if strings.ContainsAny(host, "/?[]\\ ") {
		return pattern{}, fmt.Errorf("allowed callback target %q: the star is the only wildcard", glob)
	}
	numeric := host[0] != '*' && strings.Trim(host, "0123456789.*") == ""
	return pattern{host: strings.TrimSuffix(host, "."), port: glob[i+1:], address: bracketed || numeric}, nil
}

// match reports whether a target may be dialled, and whether a pattern names the target's literal address as an
// address.
func (r rules) match(t target) (allowed, named bool) {
	host := strings.TrimSuffix(t.host, ".")
	for _, p := range r.allow {
		if globMatch(p.host, host) && globMatch(p.port, t.port) {
			allowed = true
			named = named || p.address && t.literal.IsValid()
		}
	}
	return allowed, named
}

// check refuses a target that must not be dialled. The addresses of a name are checked on connecting.
func (r rules) check(t target) error {
	allowed, named := r.match(t)
	if !allowed {
		return fmt.Errorf("%w: %s matches no glob of callbacks.allow", halfmsg.ErrForbidden, net.JoinHostPort(t.host, t.port))
	}
	if localhost(t.host) && !r.within(netip.AddrFrom4([4]byte{127, 0, 0, 1})) && !r.within(netip.IPv6Loopback()) {
		return fmt.Errorf("%w: %s always means loopback, which lies outside callbacks.networks; write the address",
			halfmsg.ErrForbidden, t.host)
	}
	if t.literal.IsValid() && !named && !r.within(t.literal) {
		return fmt.Errorf("%w: %s lies outside callbacks.networks", halfmsg.ErrForbidden, t.literal)
	}
	return nil
}

// localhost reports whether a name always resolves to this host (RFC 6761). All other names must be resolved first.
func localhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// within reports whether an address lies in the allowed networks.
func (r rules) within(addr netip.Addr) bool {
	addr = addr.Unmap()
	if len(r.networks) == 0 {
		return !addr.IsLoopback() && !addr.IsLinkLocalUnicast() && !addr.IsMulticast() && !addr.IsUnspecified()
	}
	for _, network := range r.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// control returns the check of a dialer for this target. The check sees the address that the socket is about to connect
// to, so a name that resolves elsewhere later is no way in.
func (r rules) control(t target) func(network, address string, _ syscall.RawConn) error {
	_, named := r.match(t)
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return errors.New("not an address that can be checked: " + address)
		}
		if named && to.Addr().Unmap() == t.literal || r.within(to.Addr()) {
			return nil
		}
		return fmt.Errorf("%w: %s is at %s, outside callbacks.networks", halfmsg.ErrForbidden, t.host, to.Addr())
	}
}

// globMatch matches s against a pattern in which a star stands for any characters. Matching goes back to the last star
// only, so its time is bounded by the product of the lengths.
func globMatch(pattern, s string) bool {
	p, i, star, mark := 0, 0, -1, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && pattern[p] == s[i]:
			p++
			i++
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
