package address

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

var errCoordinator = errors.New("is not a coordinator's address; write host:port, such as 127.0.0.1:9090, " +
	"or a target of gRPC, such as dns:///msghandler:9090")

// foreign lists schemes that no coordinator has. Any other scheme may have a resolver that the program has registered
// with gRPC.
var foreign = map[string]bool{
	"http": true, "https": true, "grpc": true, "grpcs": true, "tcp": true, "amqp": true, "amqps": true, "redis": true,
	"rediss": true, "kafka": true,
}

// CheckCoordinator refuses a malformed coordinator address, which gRPC would try in vain until a call's time is over.
// Valid are HOST:PORT, dns:HOST:PORT and dns:///HOST:PORT. Targets with other schemes are left to gRPC.
func CheckCoordinator(text string) error {
	scheme, rest, found := strings.Cut(text, ":")
	slashes := found && strings.HasPrefix(rest, "//")
	switch {
	case scheme == "unix" || scheme == "unix-abstract" || slashes && scheme != "dns" && !foreign[scheme]:
		return nil
	case strings.Contains(text, "@"):
		return errors.New("has an @, and a coordinator takes no login; write host:port, such as 127.0.0.1:9090")
	case scheme == "dns" && slashes:
		_, text, _ = strings.Cut(rest[2:], "/") // the name server may come before the slash
	case scheme == "dns" && strings.Contains(rest, ":"):
		text = rest
	}
	host, port, err := net.SplitHostPort(text)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || strings.Contains(host, "/") {
		return errCoordinator
	}
	return nil
}

// CheckCoordinators is CheckCoordinator for one address, or for several with commas, which are HOST:PORT each.
func CheckCoordinators(text string) error {
	several := strings.Split(text, ",")
	if len(several) == 1 {
		return CheckCoordinator(text)
	}
	for _, one := range several {
		if strings.Contains(one, "//") {
			return errors.New("names a scheme in a list; write host:port,host:port")
		}
		if err := CheckCoordinator(strings.TrimSpace(one)); err != nil {
			return err
		}
	}
	return nil
}

// OnLoopback reports whether connections to coordinators, in a form that CheckCoordinators accepts, do not leave this
// machine. Other names of the loopback, such as x.localhost, count for nothing: DNS or a proxy of the environment may
// lead them elsewhere.
func OnLoopback(text string) bool {
	for one := range strings.SplitSeq(text, ",") {
		if scheme, _, _ := strings.Cut(one, ":"); scheme == "unix" || scheme == "unix-abstract" {
			continue
		}
		host, _, err := net.SplitHostPort(strings.TrimSpace(strings.TrimPrefix(one, "dns:///")))
		addr, notAddr := netip.ParseAddr(host)
		if err != nil || host != "localhost" && (notAddr != nil || !addr.Unmap().IsLoopback()) {
			return false
		}
	}
	return true
}
