package producer

import (
	"errors"
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

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/proto/certs"
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

// dial opens a connection that is made with the first call.
func dial(config *Config) (*grpc.ClientConn, error) {
	coordinator, secured := config.Coordinator, config.TLS
	transport := insecure.NewCredentials()
	if secured != nil {
		transport = credentials.NewTLS(secured)
	}
	all := append([]grpc.DialOption{grpc.WithTransportCredentials(transport)}, dialDefaults...)
	token, err := config.token()
	if err != nil {
		return nil, err
	}
	if token != nil {
		all = append(all, grpc.WithPerRPCCredentials(certs.Bearer(token, address.OnLoopback(coordinator))))
	}
	if strings.Contains(coordinator, ",") {
		list := fixedList(coordinator, secured != nil && secured.ServerName == "")
		all = append(all, grpc.WithResolvers(list))
		coordinator = list.Scheme() + ":///coordinators"
	}
	conn, err := grpc.NewClient(coordinator, append(all, config.DialOptions...)...)
	if err != nil {
		return nil, fmt.Errorf("producer.Config: Coordinator %q: %w", coordinator, err)
	}
	return conn, nil
}

// token returns where the token of each call comes from; nil without a token. The errors quote no token.
func (c *Config) token() (func() string, error) {
	switch {
	case c.Token == "" && c.TokenFile == "":
		return nil, nil //nolint:nilnil // no token is no error
	case c.Token != "" && c.TokenFile != "":
		return nil, errors.New("producer.Config: Token and TokenFile are both set; remove one of them")
	case c.TLS == nil && len(c.DialOptions) == 0 && !address.OnLoopback(c.Coordinator):
		return nil, fmt.Errorf("producer.Config: a token is shown over TLS only, and %s is not on the loopback; set TLS",
			c.Coordinator)
	case c.Token != "":
		if err := certs.CheckToken(c.Token); err != nil {
			return nil, fmt.Errorf("producer.Config: Token %w", err)
		}
		return func() string { return c.Token }, nil
	}
	file, err := certs.OpenTokens(c.TokenFile, c.Logger)
	if err != nil {
		return nil, fmt.Errorf("producer.Config: TokenFile: %w", err)
	}
	return file.First, nil
}

// fixedList resolves to the addresses of a comma-separated list. With named, the certificate of each must be for its
// own host; otherwise the credentials name the host that all certificates must be for.
func fixedList(all string, named bool) *manual.Resolver {
	var state resolver.State
	for one := range strings.SplitSeq(all, ",") {
		a := resolver.Address{Addr: strings.TrimSpace(one)}
		if named {
			a.ServerName = a.Addr
		}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{a}})
	}
	list := manual.NewBuilderWithScheme("list")
	list.InitialState(state)
	return list
}
