package producer

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // makes connections watch their coordinator's health
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// Connections are retried within two seconds, not gRPC's two minutes, so that a coordinator is used again soon after
// a restart. The keepalive finds a connection that died silently; half a minute is the shortest interval that the
// coordinator allows. A coordinator that reports itself unhealthy, because Redis is unreachable or the coordinator is
// stopping, gets no calls while others can.
var dialDefaults = []grpc.DialOption{
	grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}],"healthCheckConfig":{"serviceName":""}}`),
	grpc.WithDisableServiceConfig(),
	grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second,
		},
		MinConnectTimeout: 5 * time.Second,
	}),
	grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 5 * time.Second}),
}

// dial opens a connection that is made with the first call. secured may be nil.
func dial(coordinator string, secured *tls.Config, options []grpc.DialOption) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if secured != nil {
		transport = credentials.NewTLS(secured)
	}
	all := append([]grpc.DialOption{grpc.WithTransportCredentials(transport)}, dialDefaults...)
	if strings.Contains(coordinator, ",") {
		list := fixedList(coordinator, secured != nil && secured.ServerName == "")
		all = append(all, grpc.WithResolvers(list))
		coordinator = list.Scheme() + ":///coordinators"
	}
	conn, err := grpc.NewClient(coordinator, append(all, options...)...)
	if err != nil {
		return nil, fmt.Errorf("producer.Config: Coordinator %q: %w", coordinator, err)
	}
	return conn, nil
}

// fixedList resolves to the addresses of a comma-separated list. With named, the certificate of each must be for its
// own host; otherwise the credentials name the host that all certificates must be for.
func fixedList(addresses string, named bool) *manual.Resolver {
	var state resolver.State
	for address := range strings.SplitSeq(addresses, ",") {
		a := resolver.Address{Addr: strings.TrimSpace(address)}
		if named {
			a.ServerName = a.Addr
		}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	list := manual.NewBuilderWithScheme("list")
	list.InitialState(state)
	return list
}
