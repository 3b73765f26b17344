package callback

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/typedname"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// rules say which targets may be dialled, and which addresses may be connected to.
type rules struct {
	allow    []pattern
	networks []netip.Prefix
	// own returns the addresses at which this coordinator listens.
	own func() []netip.AddrPort
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
	r := rules{own: func() []netip.AddrPort { return nil }}
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
		if typedname.MatchText(p.host, host) && typedname.MatchText(p.port, t.port) {
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
	if !t.literal.IsValid() {
		return nil
	}
	return r.connectable(t, netip.AddrPortFrom(t.literal, t.portNumber()), named)
}

// connectable refuses an address that a target must not lead to. Named says that callbacks.allow names the address.
func (r rules) connectable(t target, to netip.AddrPort, named bool) error {
	addr := to.Addr()
	if network, is, reserved := address.Reserved(addr); reserved {
		return fmt.Errorf("%w: %s is in %s (%s), which is never called; correct the callback target",
			halfmsg.ErrForbidden, t.at(addr), network, is)
	}
	if r.isOwn(to) {
		return fmt.Errorf("%w: %s, port %d, is a listener of this coordinator, which never calls itself; "+
			"correct the callback target", halfmsg.ErrForbidden, t.at(addr), to.Port())
	}
	if named && addr.Unmap() == t.literal || r.within(addr) {
		return nil
	}
	return fmt.Errorf("%w: %s lies outside callbacks.networks; add %s to callbacks.networks",
		halfmsg.ErrForbidden, t.at(addr), networkOf(addr))
}

// at names an address of a target in an error.
func (t target) at(addr netip.Addr) string {
	if t.literal.IsValid() {
		return addr.String()
	}
	return t.host + " at " + addr.String()
}

// networkOf is the entry of callbacks.networks that an error proposes for an address.
func networkOf(addr netip.Addr) netip.Prefix {
	if network, private := address.Private(addr); private {
		return network
	}
	addr = address.Plain(addr)
	return netip.PrefixFrom(addr, addr.BitLen())
}

// isOwn reports whether this coordinator listens at an address. A listener on all addresses is found at each address of
// the host's interfaces.
func (r rules) isOwn(to netip.AddrPort) bool {
	for _, own := range r.own() {
		if own.Port() != to.Port() {
			continue
		}
		here, there := address.Plain(own.Addr()), address.Plain(to.Addr())
		if here == there || here.IsUnspecified() && ofThisHost(there) {
			return true
		}
	}
	return false
}

// ofThisHost reports whether an address belongs to this host. An address that cannot be judged counts as the host's.
func ofThisHost(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		of, is := a.(*net.IPNet)
		if !is {
			return false
		}
		own, is := netip.AddrFromSlice(of.IP)
		return is && own.Unmap() == addr
	})
}

// localhost reports whether a name always resolves to this host (RFC 6761). All other names must be resolved first.
func localhost(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// within reports whether an address lies in the allowed networks. Without networks only public addresses are allowed.
func (r rules) within(addr netip.Addr) bool {
	if len(r.networks) == 0 {
		_, private := address.Private(addr)
		return !private
	}
	return slices.ContainsFunc(r.networks, func(network netip.Prefix) bool {
		return network.Contains(addr.Unmap()) || network.Contains(address.Plain(addr))
	})
}

// control returns the check of a dialer for this target. The check sees the address that the socket is about to connect
// to, so a name that resolves elsewhere later is no way in.
func (r rules) control(t target) func(network, address string, _ syscall.RawConn) error {
	_, named := r.match(t)
	return func(_, dialled string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(dialled)
		if err != nil {
			return errors.New("not an address that can be checked: " + dialled)
		}
		return r.connectable(t, to, named)
	}
}
