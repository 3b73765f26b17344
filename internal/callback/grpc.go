package callback

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/internal/ground/network"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxAnswer is far above the answer about 500 messages with the longest ids, which is about 70 KiB.
	maxAnswer = 1 << 20
	// idleAfter is when unused connections of a target are closed.
	idleAfter = 5 * time.Minute
	// connectTimeout is short: producers are near, and a call waits no longer either.
	connectTimeout = 3 * time.Second
)

// serviceConfig spreads calls over all addresses of a name.
const serviceConfig = `{"loadBalancingConfig":[{"round_robin":{}}]}`

// grpcTransport calls a producer by gRPC.
type grpcTransport struct {
	msghandlerv1.ProducerServiceClient
	*grpc.ClientConn
}

func (c *Client) openGRPC(t target) (transport, error) {
	conn, err := grpc.NewClient(t.String(), c.dialOptions(t)...)
	if err != nil {
		return nil, err
	}
	return grpcTransport{msghandlerv1.NewProducerServiceClient(conn), conn}, nil
}

// dialOptions are the options of a connection to a target.
func (c *Client) dialOptions(t target) []grpc.DialOption {
	watched := &sockets{muteAfter: cmp.Or(c.config.muteAfter, muteAfter)}
	secured := insecure.NewCredentials()
	if t.secure {
		secured = noted{c.config.Credentials, t.String(), c.config.Handshake}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(watched.dialer(c.dialer(t))),
		grpc.WithUnaryInterceptor(watched.intercept),
		// Nothing from outside decides how we connect: no proxy of the environment, no service config out of DNS.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(serviceConfig),
		grpc.WithIdleTimeout(idleAfter),
		// gRPC's own limit of two minutes would delay a producer after an outage. The loops have a circuit breaker as well.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.5, MaxDelay: 5 * time.Second,
			},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.WaitForReady(false)),
		grpc.WithMaxHeaderListSize(16 << 10),
	}
	return append(options, c.config.dialOptions...)
}

// noted are credentials that report their handshakes with a target.
type noted struct {
	credentials.TransportCredentials
	target string
	report func(target string, state tls.ConnectionState, err error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (n noted) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, raw)
	secured, _ := info.(credentials.TLSInfo) // empty after an error
	n.report(n.target, secured.State, err)
	return conn, info, err
}

// Clone implements credentials.TransportCredentials.
func (n noted) Clone() credentials.TransportCredentials {
	n.TransportCredentials = n.TransportCredentials.Clone()
	return n
}

// Dial connects to a target as calls do, and sends nothing.
func (c *Client) Dial(ctx context.Context, to string) (net.Conn, error) {
	t, err := c.read(to)
	if err != nil {
		return nil, err
	}
	return c.dialer(t)(ctx, "tcp", net.JoinHostPort(t.host, t.port))
}

// dialer connects to the allowed addresses of a target. All kinds of targets are connected to by it.
func (c *Client) dialer(t target) network.Dialer {
	control := func(network, address string, raw syscall.RawConn) error {
		return c.rules.Load().control(t)(network, address, raw) // a connection outlives a change of the rules
	}
	if c.config.Dial != nil {
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			if err := control(network, address, nil); err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, connectTimeout)
			defer cancel()
			return c.config.Dial(ctx, network, address)
		}
	}
	dialer := &net.Dialer{
		Timeout: connectTimeout, KeepAlive: 15 * time.Second, Resolver: c.config.resolver, Control: control,
	}
	return dialer.DialContext
}
