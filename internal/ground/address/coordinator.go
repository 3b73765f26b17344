package address

import (
	"errors"
	"net"
	"strconv"
	"strings"
)

var errCoordinator = errors.New("is not a coordinator's address; write host:port, such as 127.0.0.1:9090, " +
	"or a target of gRPC, " +
	"such as dns:///msghandler:9090")

// foreign are the schemes of what is no coordinator. Any other may be one that a program has taught its gRPC.
var foreign = map[string]bool{
	"http": true, "https": true, "grpc": true, "grpcs": true, "tcp": true, "amqp": true, "amqps": true, "redis": true,
	"rediss": true,
}

// CheckCoordinator refuses an address of a coordinator that cannot be, for which gRPC would look in vain until a call's time is
// over: one is HOST:PORT, dns:HOST:PORT or dns:///HOST:PORT. Targets with another scheme are gRPC's matter.
func CheckCoordinator(text string) error {
	scheme, rest, found := strings.Cut(text, ":")
	slashes := found && strings.HasPrefix(rest, "//")
	switch {
	case scheme == "unix" || scheme == "unix-abstract" || slashes && scheme != "dns" && !foreign[scheme]:
		return nil
	case strings.Contains(text, "@"):
		return errors.New("has an @, and nobody logs in at a coordinator; write host:port, such as 127.0.0.1:9090")
	case scheme == "dns" && slashes:
		_, text, _ = strings.Cut(rest[2:], "/") // before it may stand who is asked for the name
	case scheme == "dns" && strings.Contains(rest, ":"):
		text = rest
	}
	host, port, err := net.SplitHostPort(text)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || strings.Contains(host, "/") {
		return errCoordinator
	}
	return nil
}

// CheckCoordinators is CheckCoordinator for one, or for several with commas, which are HOST:PORT each.
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
