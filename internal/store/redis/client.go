package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/msghandler/msghandler/internal/ground/address"
)

// The driver writes its own lines to standard error when a connection fails. The caller gets every such error anyway,
// with its cause, and logs the error once.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Timeouts of the driver. The context of a call may end earlier.
const (
	// dialTimeout is short: a server on the same network answers faster or is away.
	dialTimeout = 2 * time.Second
	// replyTimeout leaves a server that forks or syncs its disk some time.
	replyTimeout = 5 * time.Second
	// masterTimeout is the same on a Cluster, where the calls for other masters wait as well. The circuit of a silent
	// master opens before.
	masterTimeout = 3 * time.Second
	// poolSize is per pool and node. Calls come in batches, so a few connections carry everything.
	poolSize = 16
	// clusterReload is short, because the default of a minute keeps a client on a dead master for most of it.
	clusterReload = time.Second
)

// Handshakes gets the results of handshakes of TLS. See Config.Handshake.
type Handshakes func(server string, state tls.ConnectionState, err error)

// connect makes a client; nothing is dialled yet. Each client has a pool of its own.
func connect(to address.Redis, config Config, location *location) redis.UniversalClient {
	dial, present := dialerOf(to, config), config.Present
	switch {
	case isSingle(to):
		dial, present = location.dial, location.login
	case present == nil:
		present = func() address.Redis { return to }
	}
	client := newClient(to, dial, present)
	if cluster, is := client.(*redis.ClusterClient); is {
		// Requests go to the masters' own clients, which have no hooks of the cluster's client.
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(pipelineErrors{}) })
	}
	client.AddHook(pipelineErrors{})
	return client
}

func newClient(to address.Redis, dial dialFunc, present func() address.Redis) redis.UniversalClient {
	login := func() (user, password string) {
		at := present()
		return at.User, at.Password
	}
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	size := cmp.Or(to.PoolSize, poolSize)
	switch {
	case to.Cluster:
		// No redirects either. The driver would send a script again after any error, so the last error could say that nothing
		// happened although the first run took effect. The driver would also follow ASK to the new place of a moving slot,
		// where a script misses the messages that have not moved yet. After MOVED the driver learns the new place anyway.
		return &cluster{ClusterClient: redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: to.Hosts, CredentialsProvider: login,
			Dialer: dial, ClientName: to.ClientName,
			Protocol: 2, MaxRetries: -1, MaxRedirects: -1, DialerRetries: 1,
			DialTimeout: dialTimeout, ReadTimeout: masterTimeout, WriteTimeout: masterTimeout, ContextTimeoutEnabled: true,
			PoolSize: size, PoolTimeout: dialTimeout, ConnMaxIdleTime: to.IdleTime, ConnMaxLifetime: to.LifeTime,
			DisableIdentity: true, MaintNotificationsConfig: quiet, ClusterStateReloadInterval: clusterReload,
		})}
	case to.Master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: to.Master, SentinelAddrs: to.Hosts,
			CredentialsProvider: login, DB: to.Database,
			Dialer: dial, OnConnect: onSentinels(to.ClientName, present),
			Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: dialTimeout,
			ReadTimeout: replyTimeout, WriteTimeout: replyTimeout, ContextTimeoutEnabled: true,
			PoolSize: size, PoolTimeout: dialTimeout, ConnMaxIdleTime: to.IdleTime, ConnMaxLifetime: to.LifeTime,
			DisableIdentity: true,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: to.Hosts[0], CredentialsProvider: login, DB: to.Database,
		Dialer: dial, ClientName: to.ClientName,
		Protocol: 2, MaxRetries: -1, DialerRetries: 1, DialTimeout: dialTimeout,
		ReadTimeout: replyTimeout, WriteTimeout: replyTimeout, ContextTimeoutEnabled: true,
		PoolSize: size, PoolTimeout: dialTimeout, ConnMaxIdleTime: to.IdleTime, ConnMaxLifetime: to.LifeTime,
		DisableIdentity: true, MaintNotificationsConfig: quiet,
	})
}

// ofMaster is in the name of the connections that the driver opens to the master that Sentinels name.
const ofMaster = "FailoverClient"

// onSentinels logs in at Sentinels with the password of now, for which the driver has no provider. A name comes after
// the login.
func onSentinels(name string, present func() address.Redis) func(context.Context, *redis.Conn) error {
	return func(ctx context.Context, conn *redis.Conn) error {
		var err error
		at := present()
		switch {
		case at.SentinelPassword == "", strings.Contains(conn.String(), ofMaster):
		case at.SentinelUser == "":
			err = conn.Auth(ctx, at.SentinelPassword).Err()
		default:
			err = conn.AuthACL(ctx, at.SentinelUser, at.SentinelPassword).Err()
		}
		if err != nil || name == "" {
			return err
		}
		return conn.ClientSetName(ctx, name).Err()
	}
}

// tlsOf is the TLS configuration, nil without TLS. Each of several servers must have a certificate for the name of the
// first server, because a Cluster or Sentinels often call the others by bare addresses.
func tlsOf(to address.Redis) *tls.Config {
	if !to.TLS {
		return nil
	}
	name, _, _ := net.SplitHostPort(to.Hosts[0]) // Hosts are joined host and port
	//nolint:gosec // an address may ask for it
	return &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: to.Unverified}
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialerOf makes the function that dials Redis, nil for the driver's own, which serves without TLS.
func dialerOf(to address.Redis, config Config) dialFunc {
	secured := tlsOf(to)
	if secured == nil {
		return dialFunc(config.Dial)
	}
	seen := config.Handshake
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: secured}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn, err := dialer.DialContext(ctx, network, addr)
		secured, _ := conn.(*tls.Conn)
		var state tls.ConnectionState
		if err == nil {
			state = secured.ConnectionState()
		}
		if seen != nil {
			seen(addr, state, err)
		}
		if err != nil {
			return nil, err
		}
		return checkedConn{secured}, nil
	}
}

// checkedConn is a TLS connection that the driver looks at before each use, as it looks at connections without TLS.
// Without the look, a call on a connection that Redis has closed in a rest (timeout) fails with an unknown outcome. A
// record of TLS that waits unread ends the connection too: here it is a close_notify, as tickets come before the first
// answer.
type checkedConn struct{ *tls.Conn }

// SyscallConn implements syscall.Conn.
func (c checkedConn) SyscallConn() (syscall.RawConn, error) {
	tcp, ok := c.NetConn().(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", c.NetConn())
	}
	return tcp.SyscallConn()
}

// pipelineErrors gives the error of a pipeline to its commands. When Redis refuses the login of a new connection, the
// driver returns the error for the pipeline alone, and each command looks as if Redis had answered it with nothing.
type pipelineErrors struct{}

// DialHook implements redis.Hook.
func (pipelineErrors) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (pipelineErrors) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook implements redis.Hook.
func (pipelineErrors) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if err == nil || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
			return err
		}
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
}

// eachMaster calls f for every master, one after the other or concurrently.
func eachMaster(ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error) error {
	switch c := client.(type) {
	case *cluster:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("no masters known of a %T", client)
}
