package app

import (
	"net"
	"time"

	"github.com/msghandler/msghandler/internal/connlimit"
	"github.com/msghandler/msghandler/internal/loglimit"
)

// userTimeout is for how long data sent to a client may stay unacknowledged before the connection is closed.
const userTimeout = 10 * time.Second

// The listeners, as logs and metrics name them.
const (
	grpcListener = "grpc"
	httpListener = "http"
)

// refusalInterval is the least time between two log lines about refused connections of a listener and reason.
const refusalInterval = 10 * time.Second

// divideConnections says how many connections each listener may have, and warns where descriptors are few.
func (a *App) divideConnections() {
	limits := a.settings.Limits
	descriptors := connlimit.Descriptors()
	a.share = connlimit.Divide(descriptors, limits.Connections, limits.ConnectionsPerAddress)
	switch {
	case connlimit.Exceeds(descriptors, limits.Connections):
		a.logger.Warn(
			"limits.connections leaves too few file descriptors for Redis and RabbitMQ; connections to them may fail when "+
				"clients use theirs; raise the limit of open files (ulimit -n, LimitNOFILE), or lower limits.connections",
			"descriptors",
			descriptors,
			"connections",
			limits.Connections,
		)
	case a.share.Low:
		a.logger.Warn("the limit of open files is low; clients beyond the number of connections are refused; "+
			"raise it (ulimit -n, LimitNOFILE)", "descriptors", descriptors, "grpc_connections", a.share.API,
			"http_connections", a.share.Console)
	}
}

// limited bounds the connections of a listener.
func (a *App) limited(name string, listener net.Listener, most, perAddress int) net.Listener {
	logged := loglimit.New(refusalInterval)
	limited := connlimit.New(
		listener,
		connlimit.Config{Max: most, PerAddress: perAddress, Refused: func(reason connlimit.Reason, from string) {
			a.metrics.ConnectionRefused(name, string(reason))
			suppressed, due := logged.Due(string(reason))
			switch {
			case !due:
			case reason == connlimit.Address:
				a.logger.Warn(
					"connection refused: too many from one address; its client sees a closed connection; find out what opens "+
						"them, or raise limits.connections_per_address",
					"listener", name, "address", from, "limit", perAddress, "not_logged_before", suppressed,
				)
			default:
				a.logger.Warn(
					"connection refused: too many in all; clients see closed connections; add coordinators, or raise "+
						"limits.connections and the limit of open files",
					"listener", name, "address", from, "limit", most, "not_logged_before", suppressed,
				)
			}
		}},
	)
	a.metrics.Connections(name, limited.Open, most)
	return limited
}
