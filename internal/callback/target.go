package callback

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// scheme is the only scheme of a target. Any other scheme would let a caller choose a resolver, a socket or a proxy.
const scheme = "dns:///"

// maxTarget is longer than any host name with a port can be.
const maxTarget = 300

// kind says how a target is called.
type kind int

const (
	// kindGRPC is called by gRPC: host:port.
	kindGRPC kind = iota
	// kindAttend is asked over the streams that the producer has opened: the host is its name.
	kindAttend
)

// target is a well-formed callback target.
type target struct {
	kind kind
	// host is lower-cased; a literal address has no brackets.
	host string
	port string
	// literal is the host as an address, and invalid where the host is a name.
	literal netip.Addr
	// secure says that the target is called with TLS.
	secure bool
}

// parseTarget reads host:port or dns:///host:port.
func parseTarget(s string) (target, error) {
	if len(s) > maxTarget {
		return target{}, fmt.Errorf("%w: it is longer than %d bytes", halfmsg.ErrBadTarget, maxTarget)
	}
	rest := strings.TrimPrefix(s, scheme)
	host, port, err := net.SplitHostPort(rest)
	if err != nil || strings.Contains(rest, "/") {
		return target{}, fmt.Errorf("%w: %q; write host:port or dns:///host:port", halfmsg.ErrBadTarget, s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return target{}, fmt.Errorf("%w: %q has no port from 1 to 65535", halfmsg.ErrBadTarget, s)
	}
	if addr, is := literal(host); is {
		return target{host: addr.String(), port: port, literal: addr}, nil
	}
	if !isHostName(host) {
		return target{}, fmt.Errorf("%w: %q has no valid host name", halfmsg.ErrBadTarget, s)
	}
	return target{host: strings.ToLower(host), port: port}, nil
}

// literal parses a host that is an address. An IPv4 address with a final dot counts as an address, and callbacks.allow
// and callbacks.networks judge the host as such.
func literal(host string) (addr netip.Addr, is bool) {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		addr, err = netip.ParseAddr(strings.TrimSuffix(host, "."))
		if err != nil || !addr.Is4() {
			return netip.Addr{}, false
		}
	}
	return addr.Unmap(), addr.Zone() == ""
}

// isHostName says whether s can be a name in DNS: letters, digits, hyphens and underscores between single dots.
func isHostName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			if !isHostByte(label[i]) {
				return false
			}
		}
	}
	return true
}

func isHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

// String is the canonical form, which is stored and dialled.
func (t target) String() string {
	if t.kind == kindAttend {
		return halfmsg.AttendTarget(t.host)
	}
	return scheme + net.JoinHostPort(t.host, t.port)
}
