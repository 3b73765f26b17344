package callback

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// scheme is the only scheme of a gRPC target. Any other scheme would let a caller choose a resolver, a socket or a
// proxy.
const scheme = "dns:///"

// maxTarget leaves a URL with the longest host name a path of 140 bytes.
const maxTarget = 400

// kind says how a target is called.
type kind int

const (
	// kindGRPC is called by gRPC: host:port.
	kindGRPC kind = iota
	// kindHTTP is called by HTTP, or by HTTPS where the target is secure: a URL.
	kindHTTP
	// kindAttend is asked over the streams that the producer has opened: the host is its name.
	kindAttend
)

// target is a well-formed callback target.
type target struct {
	kind kind
	// host is lower-cased; a literal address has no brackets.
	host string
	// port is never empty.
	port string
	// path is the path of a URL: empty, or /SEGMENT once or more.
	path string
	// literal is the host as an address, and invalid where the host is a name.
	literal netip.Addr
	// secure says that the target is called with TLS.
	secure bool
}

// parseTarget reads host:port, dns:///host:port, or a URL of HTTP. No error quotes a target that may hold a password.
func parseTarget(s string) (target, error) {
	if len(s) > maxTarget {
		return target{}, fmt.Errorf("%w: it is longer than %d bytes", halfmsg.ErrBadTarget, maxTarget)
	}
	before, after, isURL := strings.Cut(s, "://")
	if of := strings.ToLower(before); isURL && defaultPorts[of] != "" {
		return parseURL(of, after)
	}
	if strings.Contains(s, "@") {
		return target{}, fmt.Errorf("%w: a target with \"@\"; write %s", halfmsg.ErrBadTarget, forms)
	}
	rest := strings.TrimPrefix(s, scheme)
	host, port, err := net.SplitHostPort(rest)
	if err != nil || strings.Contains(rest, "/") {
		return target{}, fmt.Errorf("%w: %q; write %s", halfmsg.ErrBadTarget, s, forms)
	}
	return newTarget(host, port)
}

// forms are the forms of a target, for errors.
const forms = "host:port, dns:///host:port, http://host/path or https://host/path"

// defaultPorts are the ports of URLs that name none.
var defaultPorts = map[string]string{"http": "80", "https": "443"}

// parseURL reads a URL after its scheme.
func parseURL(scheme, rest string) (target, error) {
	if i := strings.IndexAny(rest, "@?#"); i >= 0 {
		return target{}, fmt.Errorf("%w: a URL with %q; write %s://host:port/path, without a user, a query or a fragment; "+
			"callbacks.token_file holds the token that producers are shown", halfmsg.ErrBadTarget, rest[i], scheme)
	}
	authority, path, _ := strings.Cut(rest, "/")
	if path != "" {
		path = "/" + strings.TrimSuffix(path, "/")
	}
	if !isPath(path) {
		return target{}, fmt.Errorf("%w: a URL with a path that is not plain; write segments of A-Z a-z 0-9 - . _ ~ + : "+
			"between single slashes, and no segment of dots", halfmsg.ErrBadTarget)
	}
	if !strings.Contains(authority, ":") || strings.HasSuffix(authority, "]") {
		authority += ":" + defaultPorts[scheme]
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return target{}, fmt.Errorf("%w: a URL without a host; write %s://host:port/path", halfmsg.ErrBadTarget, scheme)
	}
	t, err := newTarget(host, port)
	t.kind, t.path, t.secure = kindHTTP, path, scheme == "https"
	return t, err
}

// newTarget checks host and port.
func newTarget(host, port string) (target, error) {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return target{}, fmt.Errorf("%w: %q has no port from 1 to 65535", halfmsg.ErrBadTarget, host+":"+port)
	}
	if addr, is := literal(host); is {
		return target{host: addr.String(), port: port, literal: addr}, nil
	}
	if !isHostName(host) {
		return target{}, fmt.Errorf("%w: %q has no valid host name", halfmsg.ErrBadTarget, host+":"+port)
	}
	return target{host: strings.ToLower(host), port: port}, nil
}

// portNumber is the port as a number.
func (t target) portNumber() uint16 {
	n, _ := strconv.ParseUint(t.port, 10, 16) // checked by newTarget
	return uint16(n)
}

// isPath says whether the path of a URL has one form only: no escapes, and no segment that a server may resolve.
func isPath(path string) bool {
	if path == "" {
		return true
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if strings.Trim(segment, ".") == "" {
			return false
		}
		for i := range len(segment) {
			if !isHostByte(segment[i]) && !strings.ContainsRune(".~+:", rune(segment[i])) {
				return false
			}
		}
	}
	return true
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

// scheme is the scheme of the URL of a target by HTTP.
func (t target) scheme() string {
	if t.secure {
		return "https"
	}
	return "http"
}

// String is the canonical form, which is stored and dialled. A URL has a port where the port is not the default port.
func (t target) String() string {
	switch t.kind {
	case kindAttend:
		return halfmsg.AttendTarget(t.host)
	case kindGRPC:
		return scheme + net.JoinHostPort(t.host, t.port)
	}
	authority := net.JoinHostPort(t.host, t.port)
	if t.port == defaultPorts[t.scheme()] {
		authority = strings.TrimSuffix(authority, ":"+t.port)
	}
	return t.scheme() + "://" + authority + t.path
}
