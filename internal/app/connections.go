package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/internal/connlimit"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
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
	descriptors := connlimit.Descriptors()
	a.doors.share = connlimit.Divide(descriptors)
	if a.doors.share.Low {
		a.logger.Warn("the limit of open files is low; clients beyond the number of connections are refused; "+
			"raise the limit (ulimit -n, LimitNOFILE)", "descriptors", descriptors, "grpc_connections", a.doors.share.API,
			"http_connections", a.doors.share.Console)
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
					"connection refused: too many from one address; its client sees a closed connection; find the program "+
						"that opens so many, or add coordinators",
					"listener", name, "address", from, "limit", perAddress, "not_logged_before", suppressed,
				)
			default:
				a.logger.Warn(
					"connection refused: too many in all; clients see closed connections; add coordinators, or raise "+
						"the limit of open files",
					"listener", name, "address", from, "limit", most, "not_logged_before", suppressed,
				)
			}
		}},
	)
	a.metrics.Connections(name, limited.Open, most)
	return limited
}

func (a *App) listen(ctx context.Context, key, addr string) (net.Listener, error) {
	listen := (&net.ListenConfig{Control: connlimit.UserTimeout(userTimeout)}).Listen
	if a.process.network.Listen != nil {
		listen = a.process.network.Listen
	}
	listener, err := listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: cannot listen on %s: %w; %s", key, addr, err, listenRemedy(err))
	}
	return listener, nil
}

// listenRemedy names the action for an address that cannot be listened on.
func listenRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "stop what listens there, or set another address"
	case errors.Is(err, syscall.EACCES):
		return "set a port from 1024 on, or run with CAP_NET_BIND_SERVICE"
	}
	return "set an address that this machine has, or leave the host out (:9090) for all of its addresses"
}

// closeListener closes a listener; a listener that its server has closed is no error.
func closeListener(l net.Listener) error {
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// ownAddresses are the addresses of the open listeners.
func (a *App) ownAddresses() (own []netip.AddrPort) {
	for _, listener := range []net.Listener{a.doors.api, a.doors.console} {
		if listener == nil { // the targets of the configuration are read before the listeners open
			continue
		}
		if tcp, is := listener.Addr().(*net.TCPAddr); is {
			own = append(own, tcp.AddrPort())
		}
	}
	return own
}

// rejectUntilReady accepts connections and closes them at once, until stop is called. So a client learns at once that
// the coordinator is unavailable. Without accept, clients would wait.
func rejectUntilReady(door net.Listener) (stop func()) {
	tcp, is := door.(interface {
		net.Listener
		SetDeadline(t time.Time) error
	})
	if !is {
		return func() {}
	}
	var accepting lifecycle.Group
	accepting.Go(func() {
		for {
			conn, err := tcp.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	})
	return func() {
		// A deadline in the past wakes Accept and leaves the listener open.
		_ = tcp.SetDeadline(time.Now())
		_ = accepting.Wait(context.Background())
		_ = tcp.SetDeadline(time.Time{})
	}
}
